"""LangChain with either provider; the argument says which."""

import sys

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from report import ANTHROPIC_URL, OPENAI_URL, QUESTION, TOOL, TWENTY, equal, fails_in_words, report

OPENAI = sys.argv[1] == "openai"


def chat(model, **more):
    if OPENAI:
        return ChatOpenAI(model=model, base_url=OPENAI_URL, api_key="placeholder", max_retries=0, **more)
    return ChatAnthropic(
        model=model, base_url=ANTHROPIC_URL, api_key="placeholder", max_retries=0, max_tokens=1000, **more
    )


def text_of(message):
    content = message.content
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def gather(model):
    whole = None
    for chunk in model.stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    return whole


def whole():
    equal(text_of(chat("sim-echo").invoke(QUESTION)), QUESTION)


def stream():
    equal(text_of(gather(chat("sim-20x0"))), TWENTY)


def loop():
    equal("".join(text_of(chunk) for chunk in chat("sim-20x0").stream(QUESTION)), TWENTY)


def usage():
    if OPENAI:
        equal(gather(chat("sim-20x0", stream_usage=False)).usage_metadata, None)
    counted = gather(chat("sim-20x0", stream_usage=True)).usage_metadata
    return counted["input_tokens"], counted["output_tokens"]


def tools():
    [call] = gather(chat("sim-tools").bind_tools([TOOL])).tool_calls
    equal((call["name"], call["args"]), ("get_weather", {"city": "sim"}))


def abort():
    chunks = chat("sim-500x20").stream(QUESTION)
    next(chunks)
    chunks.close()


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(lambda model: chat(model).invoke(QUESTION)),
        "abort": abort,
    }
)
