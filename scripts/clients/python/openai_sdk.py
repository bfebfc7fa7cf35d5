from openai import OpenAI
from report import MESSAGES, OPENAI_URL, QUESTION, TOOL, TWENTY, equal, fails_in_words, report

client = OpenAI(base_url=OPENAI_URL, api_key="placeholder", max_retries=0)


def create(model, **more):
    return client.chat.completions.create(model=model, **{"messages": MESSAGES, **more})


def whole():
    equal(create("sim-echo").choices[0].message.content, QUESTION)


def stream():
    with client.chat.completions.stream(model="sim-20x0", messages=MESSAGES) as events:
        equal(events.get_final_completion().choices[0].message.content, TWENTY)


def loop():
    equal("".join(chunk.choices[0].delta.content or "" for chunk in create("sim-20x0", stream=True)), TWENTY)


def usage():
    equal([chunk.usage for chunk in create("sim-20x0", stream=True) if chunk.usage], [])
    chunks = create("sim-20x0", stream=True, stream_options={"include_usage": True})
    [usage] = [chunk.usage for chunk in chunks if chunk.usage]
    return usage.prompt_tokens, usage.completion_tokens


def tools():
    with client.chat.completions.stream(model="sim-tools", messages=MESSAGES, tools=[TOOL]) as events:
        message = events.get_final_completion().choices[0].message
    [call] = message.tool_calls
    equal((call.function.name, call.function.arguments.replace(" ", "")), ("get_weather", '{"city":"sim"}'))
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    asked = {"role": "assistant", "tool_calls": [call.model_dump(include={"id", "type", "function"})]}
    second = create("sim-tools", messages=[*MESSAGES, asked, result], tools=[TOOL])
    equal(second.choices[0].message.content, "The tool has answered.")


def abort():
    with create("sim-500x20", stream=True) as chunks:
        next(iter(chunks))


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(create),
        "abort": abort,
    }
)
