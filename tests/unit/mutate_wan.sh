#!/bin/sh
# Proof that the parity tests of engine/wan can fail: breaks one line of a copy of a source file at a
# time, links a test with it and expects the test to fail.
#
# usage: tests/unit/mutate_wan.sh BUILD [CC]      (a build without sanitizers, with tests)
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 cc=${2:-cc} work=$(mktemp -d) survivors=0 count=0
trap 'rm -rf "$work"' EXIT

# mutate TEST FILE WHAT SED: WHAT says what is wrong then; SED must change the file.
mutate() {
    count=$((count + 1))
    sed "$4" "$top/appliance/engine/wan/$2" >"$work/mutant.c"
    if cmp -s "$work/mutant.c" "$top/appliance/engine/wan/$2"; then
        echo "the mutation \"$3\" does not apply to $2 any more"
        exit 1
    fi
    "$cc" -std=gnu17 -O1 -w -D_GNU_SOURCE -I"$top/appliance" -I"$build/gen" -c "$work/mutant.c" -o "$work/mutant.o"
    # The mutant comes before the library, whose own member is left out then.
    "$cc" "$build"/tests/CMakeFiles/test_wan_"$1".dir/unit/test_wan_"$1".c.o "$work/mutant.o" "$build/librl_engine.a" \
        "$build/librl_config.a" "$build/librl_base.a" $LIBS -o "$work/mutant"
    if "$work/mutant" >"$work/log" 2>&1; then
        echo "SURVIVED: $3 ($2)"
        survivors=$((survivors + 1))
    fi
}
LIBS="-lcjson -lsodium -lcmocka -ldl -lpthread -lm ${WAN_LIBS-}"

for test in dit text vae run engine; do
    "$build/tests/test_wan_$test" >"$work/log" 2>&1 || {
        echo "test_wan_$test fails without any mutation"
        exit 1
    }
done
# The transformer.
mutate dit cpu/rope.c 'RoPE pairs (i, i + half) instead of (2i, 2i + 1)' 's|for (int64_t j = 0; j < d; j += 2) {|for (int64_t p = 0; p < d / 2; p++) { int64_t j = p / half * hd + p % half;|; s|j % hd / 2|p % half|; s/\[j + 1\]/[j + half]/g'
mutate dit dit.c 'RoPE: one exponent for all axes' 's|(double)i / lanes\[axis\]|(double)i / (head / 2)|'
mutate dit dit.c 'RoPE: rows and columns exchanged' 's|token / w % h, token % w|token % w, token / w % h|'
mutate dit dit.c 'modulation: shift and scale exchanged' '/c->x, c->m + dim, c->m, rows/s/c->m + dim, c->m,/c->m, c->m + dim,/'
mutate dit dit.c 'modulation: the feed-forward takes the gate of the attention' 's/c->m + 5 \* dim/c->m + 2 * dim/'
mutate dit dit.c 'modulation: the feed-forward shifts like the attention' 's/c->m + 4 \* dim, c->m + 3 \* dim/c->m + dim, c->m/'
mutate dit dit.c 'the head takes the projected time' 's/shift_and_e\[\] = {d->head_modulation, c->e}/shift_and_e[] = {d->head_modulation, c->e0}/'
mutate dit dit.c 'no bias of the keys in the cross-attention' 's/a->k.w, a->k.bias, NULL, prompt->keys/a->k.w, NULL, NULL, prompt->keys/'
mutate dit dit.c 'no bias of the output of the self-attention' 's/a->o.w, a->o.bias, c->m + 2/a->o.w, NULL, c->m + 2/'
mutate dit dit.c 'no bias of the patches' 's/d->patch.w, d->patch.bias/d->patch.w, NULL/'
mutate dit dit.c 'norm3 without its weights' 's/c->x, b->norm3_weight, b->norm3_bias/c->x, b->modulation, b->norm3_bias/'
mutate dit dit.c 'norm3 is not looked at: the modulated rows stay' '/norm_affine(d->ctx, c->y, c->x/s/^.*$/(void)b;/'
mutate dit dit.c 'the rows of padding count once' 's/logf((float)padding)/0/'
mutate dit dit.c 'the rows of padding are left out' 's/padding > 0 ? n + 1 : n/n/'
mutate dit dit.c 'sine before cosine in the time' 's/c->host\[i\] = (float)cos/c->host[i] = (float)sin/; s/c->host\[half + i\] = (float)sin/c->host[half + i] = (float)cos/'
mutate dit dit.c 'keys normalised by the weights of the queries' '/prompt->k\[i\], a->norm_k, NULL, NULL/s/a->norm_k/a->norm_q/'
mutate dit dit.c 'both prompts see the first one' 's/prompts\[p\]->k\[i\]/prompts[0]->k[i]/'
# The text encoder.
mutate text text.c 'positions seen from the other side' 's/text_bucket(key - query/text_bucket(query - key/'
mutate text text.c 'the first layer s position bias everywhere' 's/"relative_attention_bias.weight", i)/"relative_attention_bias.weight", 0)/'
mutate text text.c 'logits divided by the root of the width' 's|t->c.inner / t->c.heads, 1,|t->c.inner / t->c.heads, 1 / sqrtf((float)t->c.inner / (float)t->c.heads),|'
mutate text text.c 'gate and linear half exchanged' 's/wi_0.weight/wi_x.weight/; s/wi_1.weight/wi_0.weight/; s/wi_x.weight/wi_1.weight/'
mutate text text.c 'no final norm of its own' 's/y, w.x, t->norm, n/y, w.x, t->layers ? t->layers[0].norm_ffn : t->norm, n/'
# The decoder.
mutate vae vae.c 'frame 0 goes through the convolution over time' 's/if (up->time\[0\].w \&\& c->begun\[i\])/if (up->time[0].w)/'
mutate vae vae.c 'later frames see frame 0' 's/^            c->begun\[i\] = true;/            c->begun[i] = true; if (up->time[0].w) { void *f = l->spare; convolve(c, l, \&up->conv, l->spare, NULL, true, next->x, OPS_STORE_F32); keep(l, \&c->pasts[i][0]); (void)f; continue; }/'
mutate vae vae.c 'the two frames exchanged' 's/up->time\[half\]/up->time[1 - half]/'
mutate vae vae.c 'the past is not kept' 's/    past->frames\[1\] = l->spare;/    past->frames[1] = past->frames[0] = l->spare;/'
mutate vae vae.c 'latents are not scaled' 's/z\[i\] \* v->c.std\[i % v->c.channels\]/z[i]/'
mutate vae vae.c 'the mean is not added' 's/ + v->c.mean\[i % v->c.channels\]//'
mutate vae vae.c 'the shortcut is left out' 's/        sum = l->other;/        sum = l->x;/'
mutate vae vae.c 'queries and keys share a bias' 's/.k_bias = bias\[1\]/.k_bias = bias[1], .q_bias = bias[1]/; s/\.q_bias = bias\[0\],//'
mutate vae vae.c 'no SiLU before the last convolution' 's/v->last_norm, pixels(l), v->last.ci, true/v->last_norm, pixels(l), v->last.ci, false/'
# The sampler, and what the engine makes of all this.
mutate run sampler.c 'no corrector' 's/if (s->step > 0)/if (0)/'
mutate run sampler.c 'the corrector is of order 1' 's/if (order_at(s, k - 1) == 2)/if (0)/'
mutate run sampler.c 'the time is rounded, not cut' 's/(int)(1000 \* s->sigma\[s->step\])/(int)(1000 * s->sigma[s->step] + 0.5)/'
mutate engine generate.c 'guidance the wrong way round' 's/factors\[\] = {scale, 1 - scale}/factors[] = {1 - scale, scale}/'
mutate engine generate.c 'the prompts exchanged' 's/prompts\[\] = {c->prompt, c->run->negative}/prompts[] = {c->run->negative, c->prompt}/'
mutate engine generate.c 'another negative prompt is answered with the kept one' 's/strcmp(run->negative_text, text) == 0/1/'
mutate engine generate.c 'a checkpoint without the solver s state' 's/sampler_restore(c->sampler, step, payload + latents, err)/sampler_restore(c->sampler, step, payload, err)/'
mutate engine checkpoint.c 'checkpoints of other requests are taken' 's/memcmp(b + AT_REQUEST, key->request, RL_HASH_BYTES) != 0/0/'
mutate engine checkpoint.c 'damaged checkpoints are taken' 's/memcmp(sum, b + sealed, sizeof sum) != 0 ? "damaged" : NULL/NULL/'

echo "$count mutants, $survivors survived"
[ "$survivors" -eq 0 ]
