"""What inside prose is protected, and what is not."""

import pytest

from prefold.compression.protect import DEFAULT, Protection, protect


def protected(text: str, rules: Protection = DEFAULT) -> list[str]:
    return [text[start:end] for start, end in protect(text, rules)]


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/a/b?c=1&d=%20#top",
        "ops@example.org",
        "/etc/passwd",
        "~/notes",
        "C:\\Windows",
        "src/prefold/main.py",
        "docs/routing.md",
        "snake_case",
        "__init__",
        "camelCase",
        "HTTPServer",
        "McDonald",
        "foo()",
        "os.path.join",
        "std::vector",
        "550e8400-e29b-41d4-a716-446655440000",
        "deadbeef",
        "0x1F",
        "--verbose",
        "-v",
        "$HOME",
        "{{placeholder}}",
        "AT&T",
        "4.2",
        "-17",
        "+3.5%",
        "$1,000.50",
        "50 %",
        "4.2 million",
        "12 kg",
        "30 km/h",
        "2024-05-01T10:30:00Z",
        "10:30 am",
        "v1.2.3",
        "٤٢",
        "2024년에",
        "５００円",
        "3億円",
        "`x = y`",
        "``a ` b``",
        '{"a": [1, {"b": "}"}]}',
        "[1, 2]",
        '<a href="x y">',
        "</b>",
        "<!-- a comment -->",
        "<code>not prose</code>",
        "<keep>as it is</keep>",
    ],
)
def test_what_means_something_else_when_part_of_it_is_lost_stays_whole(text: str) -> None:
    """Also with marks around it, at the beginning and at the end."""
    assert protected(text) == [text]
    assert protected(f"so it is ({text}), they say") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, with marks; and more: so (it seems) \"he said\" 'yes' - or no!",
        "He and/or she. It's a well-known end.",
        "Ein ganz gewöhnlicher Satz – mit Strich.",
        "그는 어제 서울에 갔다.",
        "これは普通の文です。",
        "a < b and c > d",
        "NASA and the EU",
        "",
        "   \n\n  ",
    ],
)
def test_prose_is_not_protected(text: str) -> None:
    """Nothing in it is."""
    assert protected(text) == []


def test_fenced_code_stays_whole() -> None:
    """Until a fence closes it that is at least as long; an open one to the end of the text."""
    closed = "````py\nif a:\n```\n    pass\n````"

    assert protected(f"before\n{closed}\nafter") == [closed]
    assert protected("before\n~~~\nhow it ends") == ["~~~\nhow it ends"]


def test_tables_stay_whole() -> None:
    """Lines that are parted alike: bars, tabs, bare commas."""
    bars = "| name | who |\n|---|---|\n| a | b |"
    tabs = "name\twho\nsome\tbody"
    commas = "name,who,when\nsome,body,once"

    for table in (bars, tabs, commas):
        assert protected(f"before\n{table}\nafter") == [table]


def test_json_that_never_closes_is_protected_to_the_end_of_its_line() -> None:
    """As a cut document has it; what follows is prose again."""
    assert protected('see {"a": ["b", {"c": \nand so on') == ['{"a": ["b", {"c": ']


def test_brackets_in_strings_do_not_close() -> None:
    """JSON's strings hold anything."""
    text = '{"a": "}\\"}", "b": "]"}'

    assert protected(f"{text} end") == [text]


def test_markers_and_quotes_are_the_users_choice() -> None:
    """Marks that keep all between them, to the end if not closed; quotes, if they close."""
    rules = Protection(keep=(("[[", "]]"),), quotes=(("“", "”"),))

    assert protected("so [[do not cut]] here", rules) == ["[[do not cut]]"]
    assert protected("so [[do not cut here", rules) == ["[[do not cut here"]
    assert protected("he “said it” and “left\n\nit” there", rules) == ["“said it”"]


def test_empty_markers_are_refused() -> None:
    """They would be everywhere."""
    with pytest.raises(ValueError, match="empty"):
        Protection(keep=(("", "x"),))


def test_rules_have_a_name() -> None:
    """Other rules, another digest."""
    assert Protection().digest != Protection(keep=()).digest
    assert Protection().digest == Protection().digest


@pytest.mark.parametrize("text", ["0(", "a 0(", "x1(.", "f1(", "2(]"])
def test_a_bracket_that_is_never_closed_adds_nothing(text: str) -> None:
    """No span ends beyond the text, or takes in what is not there."""
    assert all(end <= len(text) for _, end in protect(text))
