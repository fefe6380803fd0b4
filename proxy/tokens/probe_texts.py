"""Texts on which tokenizers are known to disagree; two that agree on all are taken as equal.

No text is anyone's prompt: all are written or drawn here.
"""

import random

NAMED_TEXTS = {
    "english": "The quick brown fox isn't jumping over 13 lazy dogs, does it? We'LL see; I'd.",
    "code": "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x**2}  #\n\n\n\tif (a!=b) { c += d; }",
    "white space": " a  b   c \n\n\n d\t\te \r\n f\u00a0g\u2003h\u3000i   \n  ",
    "digits": "0 12 345 6789 12345678 3.14159 1,000,000 ٠١٢٣٤٥ १२३ ⅷ ½ ² ①②③  7  ٣",
    "korean": "안녕하세요. 오늘 날씨는 어떻습니까? 12월 25일",
    "chinese": "你好，世界。今天是2024年12月，天气很好！𠮷野家",
    "japanese": "こんにちは、世界。カタカナとひらがな、漢字ｶﾀｶﾅ。",
    "right to left": "שלום עולם, מה שלומך? السَّلَامُ عَلَيْكُمْ ١٢٣",
    "indic": "नमस्ते दुनिया। தமிழ் বাংলা ไทยภาษา",
    "cyrillic and greek": "Привет, мир! Ελληνικά κείμενα. Ѐѐ",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇰🇷🇩🇪 ❤️ ☕ 🫠a👨‍💻b",
    "decomposed": "e\u0301 a\u030a n\u0303 \u1112\u1161\u11ab o\u0308\u0304 q\u0323\u0307",
    "control characters": "a\x00b\x01c\x07d\x1be\x7ff\x85g\u200bh\u200ei\ufeffj\u2028k\u00adl\x1f",
    "punctuation": "...!!!???---___***$$$%%%^^^&&&(((]]]{{{<<<>>>~~~```|||\\\\//::;;\"\"''",
    "urls": "https://example.org/a-b_c/d?e=f&g=%20h#i user@example.org C:\\x\\y 127.0.0.1:8080",
    "case": "ALLCAPS camelCaseWord snake_case_word DON'T Don’T I'M ŉ ß ẞ İıſK I'ſ",
    "empty": "",
    "lone": "\ufffd\U0010ffff\U000e0001\ue000\u0378",
}

# Where random strings are drawn from: (first, last) code point, no surrogates.
_RANGES = (
    (0x00, 0x7F),
    (0x20, 0x7E),
    (0x80, 0x24F),
    (0x300, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0x1100, 0x11FF),
    (0x2000, 0x2BFF),
    (0x3000, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xFFFF),
    (0x1F000, 0x1FAFF),
    (0x10000, 0x10FFFF),
)


def random_texts(count: int, *, seed: int, special_tokens: tuple[str, ...] = ()) -> list[str]:
    """Draw strings of up to 40 pieces over many scripts, some with special tokens in them."""
    rng = random.Random(seed)
    pieces = (" ", "  ", "\n", "\u200d", "\ufe0f", "'s", "12", *special_tokens[:8])

    def piece() -> str:
        if rng.random() < 0.25:
            return rng.choice(pieces)
        return chr(rng.randint(*rng.choice(_RANGES)))

    return ["".join(piece() for _ in range(rng.randint(1, 40))) for _ in range(count)]


def probe_texts(special_tokens: tuple[str, ...]) -> list[str]:
    """All named texts, the special tokens in and between words, and 300 random strings."""
    named = list(NAMED_TEXTS.values())
    around = [
        f"a {token} b{token}\n{token[:-1]} {token[1:]}{token}{token}"
        for token in special_tokens[:64]
    ]
    joined = "".join(f"{token}{text}" for token, text in zip(special_tokens, named, strict=False))
    return [*named, *around, joined, *random_texts(300, seed=20, special_tokens=special_tokens)]
