"""Makes synthetic.json: small tokenizers that use every supported component, with the results
of the Python tokenizers library (0.23.3) on random texts. With a folder of real
<name>/tokenizer.json files as second argument it instead writes results for those into the
folder named first: make_synthetic.py OUT [REAL]. Needs: pip install tokenizers==0.23.3
"""

import json, os, random, sys
import tokenizers
from tokenizers import Tokenizer

assert tokenizers.__version__ == "0.23.3"
R = random.Random(7)

ALPHA = list("aabbccdeERSTsmtvl zZäßſéÉǅʰʕª中国あアー가אहि") + ["\u0301", "\u0308", "\u0323", "\u093f", "\u200d", "\ufe0f", "\u0345"]
ALPHA += list("0123²½Ⅷ٣ ''’      \t\n\n\r\u0085\u00a0\u2003\u3000▁▁") + list("!\"#$%()*+,-./:;<=>?@[\\]^_{|}~«…。€") + ["\0", "\x7f", "\u200b", "\ufeff", "\ufffd"]
ALPHA += ["🤷🏽‍♀️", "👨‍👩‍👧", "🇩🇪", "\u088f", "\U00010940", "\U00033479", "\U000105d2", "\u0307", "\U0001611e", "ﬁ", "㌀", "①", "Ａ", "İ", "ự", "ḍ̇", "각", "ᄀ", "ᅡ", "ᆨ", "\u0958", "\u212b", "\u2126"]
WORDS = ["don't", "I'LL", "it'ſ", "the quick", " hello", "HTTPServer", "\r\n", "\n\n\n", "    ", " \n ", "\t\t", "x=1;", "12345", "3.14", "été", "e\u0301te\u0301", "naïve", "Привет", "東京都", "مرحبا", "שלום", "हिन्दी", "a\u0323\u0307", "a\u0307\u0323", "\u0301", "x" + "\u0301" * 40, "<0x0A>", "http://a.b/c?d=e&f"]


def text(specials):
    s = ""
    for _ in range(R.randint(0, 14)):
        k = R.random()
        if k < 0.12 and specials:
            t = R.choice(specials)
            if R.random() < 0.25 and len(t) > 1:
                t = t[:-1] if R.random() < 0.5 else t[1:]
            s += t
        elif k < 0.35:
            s += R.choice(WORDS)
        elif k < 0.4:
            s += chr(R.randrange(0x3000))
        elif k < 0.43:
            c = R.randrange(0x110000)
            s += chr(c) if not 0xD800 <= c < 0xE000 else "?"
        elif k < 0.5:
            s += R.choice(ALPHA) * R.randint(1, 6)
        else:
            s += R.choice(ALPHA)
    return s


def odd(t, ids):
    """Whether ids has a special token that is written otherwise in a normalised text: the library
    does not find it among the special ones when decoding and keeps it; this package drops it."""
    special = {i for i, a in t.get_added_tokens_decoder().items() if a.special and a.normalized}
    return any(i in special and t.normalizer and t.normalizer.normalize_str(t.get_added_tokens_decoder()[i].content) != t.get_added_tokens_decoder()[i].content for i in ids)


def rows(t, n, specials):
    out = []
    for _ in range(n):
        s = text(specials)
        add = R.random() < 0.5
        try:
            t.encode_special_tokens = False
            ids = t.encode(s, add_special_tokens=add).ids
            t.encode_special_tokens = True
            noc = t.encode(s, add_special_tokens=add).ids
        except BaseException as e:  # the library panics if white space taken by rstrip is itself a token
            assert "bad split" in str(e)
            continue
        finally:
            t.encode_special_tokens = False
        r = {"text": s, "add_special_tokens": add, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)}
        if noc != ids:
            r["ids_no_control"] = noc
        d = t.decode(ids, skip_special_tokens=True)
        if odd(t, ids):
            r["any_skip_special"] = True
        elif d != r["decoded"]:
            r["decoded_skip_special"] = d
        out.append(r)
    return out


def random_ids(t, n):
    size = t.get_vocab_size()
    out = []
    for _ in range(n):
        ids = [R.randrange(size) for _ in range(R.randint(0, 10))]
        out.append({"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False), "skip": None if odd(t, ids) else t.decode(ids, skip_special_tokens=True)})
    return out


def added(content, id, special=False, normalized=False, lstrip=False, rstrip=False, single_word=False):
    return dict(id=id, content=content, special=special, normalized=normalized, lstrip=lstrip, rstrip=rstrip, single_word=single_word)


CORPUS = WORDS + ["the them there theme here her he she", "hello world hello there", "  the    the ", "foo bar foobar barfoo 12 1234 00", "▁the▁hello▁▁", "中国 中国人 東京", "don't won't can't I'll you'll"]


def bytes_alphabet():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    m, n = {b: chr(b) for b in bs}, 0
    for b in range(256):
        if b not in m:
            m[b] = chr(256 + n)
            n += 1
    return m


def train(symbols, words, merges, start):
    vocab = {s: i + start for i, s in enumerate(symbols)}
    seqs = [list(w) for w in words]
    out = []
    for _ in range(merges):
        count = {}
        for s in seqs:
            for p in zip(s, s[1:]):
                count[p] = count.get(p, 0) + 1
        if not count:
            break
        best = max(sorted(count), key=lambda p: count[p])
        out.append(best)
        vocab.setdefault(best[0] + best[1], len(vocab) + start)
        for s in seqs:
            i = 0
            while i + 1 < len(s):
                if (s[i], s[i + 1]) == best:
                    s[i : i + 2] = [s[i] + s[i + 1]]
                i += 1
    return vocab, out


def byte_level(pre, **kw):
    m = bytes_alphabet()
    words = ["".join(m[b] for b in w.encode()) for w in CORPUS * 2]
    vocab, merges = train([m[b] for b in range(256)], words, 150, 0)
    if kw.get("whole"):  # a token that no merge makes
        vocab["Ġzebra"] = len(vocab)
    n = len(vocab)
    toks = [added("<|end|>", n, special=True), added("<|start|>", n + 1, special=True), added("<think>", n + 2), added("<|e", n + 3, special=True)]
    toks += [added("é", n + 4, normalized=True), added("[L]", n + 5, lstrip=True), added("[R]", n + 6, rstrip=True, special=True), added("word", n + 7, single_word=True), added("\n\n\n", n + 8), added("  ", n + 9, normalized=True)]
    toks += [added("<|N|>", n + 10, special=True, normalized=True)]
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=toks, normalizer=kw.get("norm"), pre_tokenizer=pre, post_processor=kw.get("post"), decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=kw.get("whole", False), vocab=vocab, merges=[list(p) for p in merges]),
    )


def sp(norm, pre, decoder, fallback=True, unk="<unk>", fuse=True, post=None, normalized=False):
    symbols = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    chars = sorted(set("".join(CORPUS).replace(" ", "▁")) - set("é東ſx"))
    vocab, merges = train(symbols + chars, ["▁" + w.replace(" ", "▁") for w in CORPUS * 2 if not set(w) & set("é東ſx")], 120, 0)
    n = len(vocab)
    toks = [added("<unk>", 0, special=True), added("<s>", 1, special=True), added("</s>", 2, special=True), added("<turn>", n, special=True, normalized=normalized), added("▁▁▁", n + 1), added("the", n + 2, normalized=True, single_word=True), added("\n\n", n + 3)]
    return dict(version="1.0", truncation=None, padding=None, added_tokens=toks, normalizer=norm, pre_tokenizer=pre, post_processor=post, decoder=decoder,
        model=dict(type="BPE", dropout=None, unk_token=unk, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=fuse, byte_fallback=fallback, ignore_merges=False, vocab=vocab, merges=[" ".join(p) for p in merges]))


BL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BLR = dict(BL, use_regex=True)
BLP = dict(BLR, add_prefix_space=True)


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def ssplit(s, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"String": s}, "behavior": behavior, "invert": invert}


def seq(*pre):
    return {"type": "Sequence", "pretokenizers": list(pre)}


def post(bos, eos):
    single = [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "E", "type_id": 0}}]
    return {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"B": {"id": "B", "ids": [bos], "tokens": ["B"]}, "E": {"id": "E", "ids": [eos, eos], "tokens": ["E", "E"]}}}]}


SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
LLAMA = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
GEMMA = {"type": "Sequence", "decoders": LLAMA["decoders"][:3]}


def metaspace(scheme, s=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": s}


def nseq(*n):
    return {"type": "Sequence", "normalizers": list(n)}


CASES = {
    "byte-level gpt2": byte_level(BLR),
    "byte-level prefix space": byte_level(BLP),
    "byte-level post": byte_level(BLR, post=post(1, 2), whole=True),
    "nfc": byte_level(BLR, norm={"type": "NFC"}),
    "nfd": byte_level(BLR, norm={"type": "NFD"}),
    "nfkc lower": byte_level(BLR, norm=nseq({"type": "NFKC"}, {"type": "Lowercase"})),
    "nfkd": byte_level(BLR, norm={"type": "NFKD"}),
    "replace regex": byte_level(BLR, norm={"type": "Replace", "pattern": {"Regex": "\\s+|e+"}, "content": " "}),
    "digits, bytes in the middle": byte_level(seq({"type": "Punctuation", "behavior": "Contiguous"}, BLR, {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))),
    "single digits": byte_level(seq({"type": "Digits", "individual_digits": True}, BLR)),
    "letters merged with previous": byte_level(seq(split("\\p{L}+", "MergedWithPrevious"), BL)),
    "letters merged with next": byte_level(seq(split("[\\p{L}\\p{M}]", "MergedWithNext"), BL)),
    "contiguous": byte_level(seq(split("\\p{N}|\\p{P}", "Contiguous"), BL)),
    "removed": byte_level(seq(split("\\s", "Removed"), BL)),
    "inverted": byte_level(seq(split("\\p{L}+|\\p{N}", "Isolated", True), BL)),
    "inverted removed": byte_level(seq(split("[^\\s]+|\\s+(?!\\S)", "Removed", True), BLR)),
    "possessive": byte_level(seq(split("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"), BL)),
    "line ends": byte_level(seq(split("^.|.$|\\s+$"), BL)),
    "string split": byte_level(seq(ssplit(" ", "MergedWithPrevious"), ssplit("..", "Isolated"), ssplit("a", "MergedWithNext"), BL)),
    "white space": byte_level(seq({"type": "WhitespaceSplit"}, BL)),
    "qwen3.5": byte_level(seq(split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"), BL)),
    "tekken": byte_level(seq(split("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"), BL)),
    "llama 2": sp(nseq({"type": "Prepend", "prepend": "▁"}, SPACE), None, LLAMA, post=post(1, 2)),
    "llama 2, normalized special": sp(nseq({"type": "Prepend", "prepend": "▁"}, SPACE), None, LLAMA, normalized=True),
    "llama 2, metaspace first": sp(None, metaspace("first", False), LLAMA),
    "metaspace always": sp(None, metaspace("always"), metaspace("always")),
    "metaspace first, split": sp(None, metaspace("first"), metaspace("first")),
    "metaspace never": sp(None, metaspace("never"), metaspace("never")),
    "gemma": sp(SPACE, ssplit(" ", "MergedWithPrevious"), GEMMA),
    "gemma, split": sp(SPACE, ssplit("▁", "MergedWithPrevious"), GEMMA),
    "unknown fused": sp(SPACE, None, GEMMA, fallback=False),
    "unknown one by one": sp(SPACE, None, GEMMA, fallback=False, fuse=False),
    "unknown dropped": sp(SPACE, None, GEMMA, fallback=False, unk=None),
    "no decoder": sp(SPACE, None, None),
}

if len(sys.argv) > 2:
    for name in sorted(os.listdir(sys.argv[2])):
        path = os.path.join(sys.argv[2], name, "tokenizer.json")
        t = Tokenizer.from_file(path)
        a = list(t.get_added_tokens_decoder().values())
        specials = [x.content for x in R.sample(a, min(60, len(a)))]
        with open(os.path.join(sys.argv[1], name + ".json"), "w") as f:
            json.dump([dict(name=name, path=path, rows=rows(t, 4000, specials), decodes=random_ids(t, 500))], f)
else:
    out = []
    for name, tok in CASES.items():
        t = Tokenizer.from_str(json.dumps(tok))
        for x in tok["added_tokens"]:  # the library numbers them itself
            x["id"] = t.token_to_id(x["content"])
        specials = [x["content"] for x in tok["added_tokens"]] + ["word", "aword", "wordy", " zebra", " [L]", "[R] "]
        out.append(dict(name=name, tokenizer=tok, rows=rows(t, int(os.environ.get("ROWS", "60")), specials), decodes=random_ids(t, 30)))
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
