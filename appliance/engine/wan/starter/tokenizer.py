"""The starter's own SentencePiece vocabulary: unigram, NFKC and case folding, ids as umT5 (pad 0, eos 1, bos 2, unk 3)."""
import io
import os

import sentencepiece
import torch

import world
from model import TEXT_LEN

PIECES = 320


def train(path, seed=5):
    """Writes the protobuf to path. Deterministic: one thread, seeded sentences. No file names: the model would keep them."""
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(world.captions_for_tokenizer(40000, seed)), model_writer=proto,
        model_type='unigram', vocab_size=PIECES, hard_vocab_limit=False, pad_id=0,
        eos_id=1, bos_id=2, unk_id=3, character_coverage=1., num_threads=1, normalization_rule_name='nmt_nfkc_cf',
        minloglevel=2)
    with open(path + '.new', 'wb') as f:
        f.write(proto.getvalue())
    os.replace(path + '.new', path)


class Tokenizer:
    def __init__(self, path=None, proto=None):
        if proto is None:
            with open(path, 'rb') as f:
                proto = f.read()
        self.proto = proto
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=self.proto)
        self.size = self.sp.vocab_size()

    def ids(self, text):
        """TEXT_LEN ids: the pieces, 1 for the end, 0 for padding."""
        a = self.sp.encode(text)[:TEXT_LEN - 1] + [1]
        return a + [0] * (TEXT_LEN - len(a))

    def batch(self, texts):
        return torch.tensor([self.ids(t) for t in texts])
