"""What every program here has in common: the questions, and the lines that scripts/clients.ts reads."""

import asyncio
import inspect
import json
import os
import sys

BASE_URL = os.environ["BASE_URL"]
OPENAI_URL = BASE_URL + "/v1"
ANTHROPIC_URL = BASE_URL
QUESTION = "Say this back, word by word"
MESSAGES = [{"role": "user", "content": QUESTION}]
# What the model sim-20x0 answers.
TWENTY = " ".join(f"t{index}" for index in range(20))
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


async def fails_in_words(ask):
    """Fails unless `ask` raises in the service's words, for either status."""
    for status in (401, 429):
        words = None
        try:
            result = ask(f"sim-error-{status}")
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            words = f"{error} {error.__cause__ or ''}"
        if words is None:
            raise AssertionError(f"no error for {status}")
        if f"the simulated model answers {status}" not in words:
            raise AssertionError(f"{status}: {words}")


async def run(features):
    """Runs the features by name; one may give its counts of tokens in and out. Waits for a line after each."""
    for feature, ask in features.items():
        line = {"feature": feature, "ok": True}
        try:
            result = ask()
            counted = await result if inspect.isawaitable(result) else result
            if counted is not None:
                line["counted"] = counted
        except Exception as error:
            line.update(ok=False, detail=f"{type(error).__name__}: {error}")
        print("\n" + json.dumps(line, separators=(",", ":")), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    sys.stdout.flush()
    os._exit(0)


def report(features):
    asyncio.run(run(features))
