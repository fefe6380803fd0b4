"""Made-up English of any length, the same for the same seed: for prompts that may be compressed."""

import random

SUBJECTS = ("The harbour office", "A retired surveyor", "Every second ferry", "The night porter")
VERBS = ("counted", "had almost forgotten", "kept a careful record of", "would never mention")
OBJECTS = ("the wooden crates", "a letter from the mill", "all of the lanterns", "the old ledger")
ENDS = (
    "before the tide came in",
    "because nobody else wanted to do it",
    "while the other people were waiting outside",
    "in a way that is still remembered in the town",
)


def prose(seed: int, sentences: int) -> str:
    rng = random.Random(f"prose {seed}")
    parts = (SUBJECTS, VERBS, OBJECTS, ENDS)
    made = [" ".join(rng.choice(part) for part in parts) + "." for _ in range(sentences)]
    return f"Document {seed} begins here. " + " ".join(made)
