#!/usr/bin/python3
"""Makes the models and cases of test_wan_tokenizer.c: make.py FOLDER. Needs Debian's python3-sentencepiece (the oracle).

plain.model   nmt_nfkc, user-defined and control symbols; what umT5's model is like
bytes.model   no normalisation, white space kept, byte fallback
cases.bin     texts and the ids that SentencePiece gives with each; where it falls back to bytes, one unknown id per run
              stands, as in Hugging Face's tokenizers. Records: u32 length of a text, u32 how often it is repeated, the
              text, then per model u32 count of ids and either the ids (u16, up to 100) or their FNV-1a (u64).
              Little-endian.
normal.bin    u64 FNV-1a of what plain.model's normaliser makes of each block of 256 code points
"""
import os
import random
import struct
import sys
import tempfile

import sentencepiece

WORDS = {
    'english': 'a the red circle square moving left right up down big small cat dog walks on street rain slowly light '
               'camera sunset ocean waves cinematic shot of an old man reading book in garden',
    'german': 'ein rotes Auto fährt schnell über die Brücke während Regen fällt grüne Wälder Straße schön',
    'french': 'une voiture rouge roule très vite forêt été là où garçon naïf cœur château',
    'russian': 'красный круг движется влево большая собака бежит по улице медленно дождь',
    'greek': 'κόκκινος κύκλος κινείται αριστερά μεγάλος σκύλος θάλασσα',
    'arabic': 'دائرة حمراء تتحرك إلى اليسار قطة كبيرة في الشارع البحر',
    'hebrew': 'עיגול אדום זז שמאלה כלב גדול ברחוב ים',
    'hindi': 'एक लाल वृत्त बाईं ओर चलता है बड़ा कुत्ता समुद्र',
    'thai': 'วงกลมสีแดงเคลื่อนที่ไปทางซ้าย แมวตัวใหญ่ ทะเล',
    'chinese': '红色的圆形 向左移动 一只大猫 在街上 下雨 海浪 夕阳',
    'japanese': '赤い円が 左に動く 大きな猫 通りを歩く カメラ ゆっくり',
    'korean': '빨간 원이 왼쪽으로 움직인다 큰 고양이 거리 바다',
}
BLOCKS = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5f4), (0x600, 0x6ff),
          (0x900, 0x97f), (0xe00, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x20cf), (0x2100, 0x218b),
          (0x2460, 0x24ff), (0x3000, 0x30ff), (0x3130, 0x318e), (0x3200, 0x33ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
          (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xfe6f), (0xfe70, 0xfeff), (0xff00, 0xffef), (0x10330, 0x1034a),
          (0x1d400, 0x1d7ff), (0x1f300, 0x1f6ff), (0x20000, 0x2a6df), (0x2f800, 0x2fa1d), (0xe0000, 0xe01ef)]
SPACES = ' \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u2581'
INVISIBLE = '\x00\x01\x07\x08\x1b\x1f\x7f\x80\x9f\xad\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2066\ufeff\ufffd\ufffe'
EMOJI = ['\U0001f600', '\U0001f468\u200d\U0001f469\u200d\U0001f467', '\U0001f44d\U0001f3fd', '\u2764\ufe0f', '\u2764',
         '\U0001f1e9\U0001f1ea', '\U0001f3f4\U000e0067\U000e0062\U000e007f', '1\ufe0f\u20e3', '\U0001f9d1\u200d\U0001f680']
SYMBOLS = ['<extra_0>', '<extra_1>', '<extra', 'a b', 'ﬁx', '{}', '{}{']
RESERVED = ['<pad>', '</s>', '<s>', '<unk>', '<ctrl>', '<0x41>', '<0x0A>', '▁', '▁▁', '▁the', 'the▁']
PUNCTUATION = ',.;:!?-—…“”‘’"\'()[]&/%#@*+=|~^`'


def sentence(rng):
    words = WORDS[rng.choice(list(WORDS))].split()
    return ' '.join(words[min(int(rng.expovariate(4 / len(words))), len(words) - 1)] for _ in range(rng.randint(2, 12)))


def train(folder, name, sentences, **options):
    """The model holds the names of its files: relative ones, so that equal content gives equal bytes."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open('sentences.txt', 'w', encoding='utf-8') as f:
            f.writelines(s + '\n' for s in sentences)
        sentencepiece.SentencePieceTrainer.train(
            input='sentences.txt', model_prefix=name, model_type='unigram', hard_vocab_limit=False, pad_id=0, eos_id=1,
            bos_id=2, unk_id=3, num_threads=1, minloglevel=2, **options)
        os.chdir(home)
        with open(os.path.join(scratch, name + '.model'), 'rb') as f:
            model = f.read()
    with open(os.path.join(folder, name + '.model'), 'wb') as f:
        f.write(model)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def block_text(rng):
    lo, hi = rng.choice(BLOCKS)
    return ''.join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 20)))


def mixture(rng):
    out = []
    for _ in range(rng.randint(1, 9)):
        kind = rng.randrange(9)
        if kind < 3:
            out.append(sentence(rng))
        elif kind == 3:
            out.append(block_text(rng))
        elif kind == 4:
            out.append(rng.choice(EMOJI))
        elif kind == 5:
            out.append(''.join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))))
        elif kind == 6:
            out.append(rng.choice(INVISIBLE))
        elif kind == 7:
            out.append(rng.choice(SYMBOLS + RESERVED))
        else:
            out.append(''.join(rng.choice(PUNCTUATION) for _ in range(rng.randint(1, 3))))
        if rng.random() < .5:
            out.append(' ')
    return ''.join(out)


def broken(rng):
    """Bytes that are not UTF-8: noise, cut characters, overlong forms, surrogates, beyond U+10FFFF."""
    text = bytearray(mixture(rng).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        text[at:at + rng.randint(0, 2)] = rng.choice([
            bytes([rng.randint(128, 255)]), b'\xc0\x80', b'\xe0\x80\xaf', b'\xed\xa0\x80', b'\xf4\x90\x80\x80',
            b'\xf0\x9f\x98', b'\xe2\x96', b'\xff\xfe', bytes(rng.randrange(256) for _ in range(5))])
    return bytes(text)


def texts(rng):
    yield from (b'', b' ', b'  ', b'\n', b'a', b' a', b'a ', b'a  b', '\u3000'.encode(), '▁'.encode(), b'\0', b'\xff')
    for symbol in SYMBOLS + RESERVED + EMOJI + list(SPACES) + list(INVISIBLE):
        for form in ('%s', 'a%s', '%sa', ' %s ', '%s%s'):
            yield (form.replace('%s', symbol)).encode()
    for _ in range(300):
        yield sentence(rng).encode()
    for lo, hi in BLOCKS:
        for _ in range(16):
            yield ''.join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 16))).encode()
    for _ in range(900):
        yield mixture(rng).encode()
    for _ in range(300):
        yield broken(rng)


def long_texts(rng):
    """(text, times): 64 KB each."""
    for make in (mixture, sentence, block_text):
        text = b''.join(make(rng).encode() for _ in range(40))[:2048]
        yield text, 65536 // len(text)
    yield from ((b'a', 65536), (b' ', 65535), (b' x', 32768), ('▁'.encode(), 21845), (b'\xf0', 65536))


def expected(processor, text):
    ids = []
    unknown = processor.unk_id()
    for i in processor.encode(text):
        i = unknown if processor.is_byte(i) else i
        if not (i == unknown and ids and ids[-1] == unknown):
            ids.append(i)
    return ids


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return h


def record(processors, text, times=1):
    out = [struct.pack('<II', len(text), times), text]
    for processor in processors:
        ids = expected(processor, text * times)
        data = struct.pack('<%dH' % len(ids), *ids)
        out += [struct.pack('<I', len(ids)), data if len(ids) <= 100 else struct.pack('<Q', fnv(data))]
    return b''.join(out)


def normalised(processor, text):
    """The pieces of unknown characters are the normalised text itself, and so are all others."""
    return ''.join(p.piece for p in processor.encode(text, out_type='immutable_proto').pieces)


def code_points(block):
    return ''.join('x' + chr(c) for c in range(256 * block, 256 * block + 256) if not 0xd800 <= c < 0xe000)


def main(folder):
    rng = random.Random(8)
    sentences = [sentence(rng) for _ in range(6000)]
    plain = train(folder, 'plain', sentences, vocab_size=900, normalization_rule_name='nmt_nfkc',
                  user_defined_symbols=SYMBOLS, control_symbols=['<ctrl>'], character_coverage=.995)
    fallback = train(folder, 'bytes', sentences, vocab_size=800, normalization_rule_name='identity', byte_fallback=True,
                     remove_extra_whitespaces=False, character_coverage=.98, user_defined_symbols=SYMBOLS[:2])
    with open(os.path.join(folder, 'cases.bin'), 'wb') as f:
        f.writelines(record((plain, fallback), text) for text in texts(rng))
        f.writelines(record((plain, fallback), *case) for case in long_texts(rng))
    with open(os.path.join(folder, 'normal.bin'), 'wb') as f:
        for block in list(range(0x400)) + list(range(0xe00, 0xe02)):
            f.write(struct.pack('<Q', fnv(normalised(plain, code_points(block)).encode())))


if __name__ == '__main__':
    main(sys.argv[1])
