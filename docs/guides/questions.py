"""Questions on a document each, as bodies of the API: python questions.py NUMBER LONGEST_CHARS"""

import json
import sys
from pathlib import Path

number, longest = map(int, sys.argv[1:])
# Your documents go here.
texts = [" ".join(text.split()) for text in Path("LICENSE").read_text().split("\n\n")]
documents = [text for text in texts if 150 < len(text) < longest]
for case in range(number):
    # All parts but the last, which is the question, are documents.
    parts = [f"Case {case}. {documents[case % len(documents)]}", "Who may do what?"]
    body = {
        "model": "smollm2",
        "max_tokens": 2,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": text} for text in parts]},
        ],
    }
    print(json.dumps({"body": body}))
