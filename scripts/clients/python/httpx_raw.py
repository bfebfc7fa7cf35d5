"""No SDK at all: the requests and events by hand."""

import json

import httpx
from report import MESSAGES, OPENAI_URL, QUESTION, TOOL, TWENTY, equal, fails_in_words, report

client = httpx.Client(base_url=OPENAI_URL, timeout=20)


def asked(model, **more):
    return {"model": model, "messages": MESSAGES, **more}


def create(model, **more):
    response = client.post("/chat/completions", json=asked(model, **more))
    if response.is_error:
        raise RuntimeError(response.text)
    return response.json()


def events(model, **more):
    with client.stream("POST", "/chat/completions", json=asked(model, stream=True, **more)) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[6:])


def whole():
    equal(create("sim-echo")["choices"][0]["message"]["content"], QUESTION)


def text_of(chunks):
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def loop():
    equal(text_of(events("sim-20x0")), TWENTY)


def usage():
    equal([chunk["usage"] for chunk in events("sim-20x0") if "usage" in chunk], [])
    chunks = events("sim-20x0", stream_options={"include_usage": True})
    [usage] = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    return usage["prompt_tokens"], usage["completion_tokens"]


def tools():
    [call] = create("sim-tools", tools=[TOOL])["choices"][0]["message"]["tool_calls"]
    equal((call["function"]["name"], json.loads(call["function"]["arguments"])), ("get_weather", {"city": "sim"}))


def abort():
    chunks = events("sim-500x20")
    next(chunks)
    chunks.close()


report(
    {
        "whole": whole,
        "stream": loop,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(create),
        "abort": abort,
    }
)
