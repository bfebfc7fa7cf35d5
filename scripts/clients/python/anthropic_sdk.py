from anthropic import Anthropic
from report import ANTHROPIC_URL, MESSAGES, QUESTION, TWENTY, equal, fails_in_words, report

client = Anthropic(base_url=ANTHROPIC_URL, api_key="placeholder", max_retries=0)
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def asked(model, **more):
    return {"model": model, "max_tokens": 1000, "messages": MESSAGES, **more}


def create(model, **more):
    return client.messages.create(**asked(model, **more))


def final(model, **more):
    with client.messages.stream(**asked(model, **more)) as events:
        return events.get_final_message()


def whole():
    equal(create("sim-echo").content[0].text, QUESTION)


def stream():
    equal(final("sim-20x0").content[0].text, TWENTY)


def loop():
    events = create("sim-20x0", stream=True)
    equal("".join(event.delta.text for event in events if event.type == "content_block_delta"), TWENTY)


def usage():
    counted = final("sim-20x0").usage
    return counted.input_tokens, counted.output_tokens


def tools():
    first = final("sim-tools", tools=[TOOL])
    [call] = [block for block in first.content if block.type == "tool_use"]
    equal((call.name, call.input), ("get_weather", {"city": "sim"}))
    used = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages = [*MESSAGES, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    equal(create("sim-tools", messages=messages, tools=[TOOL]).content[0].text, "The tool has answered.")


def abort():
    with create("sim-500x20", stream=True) as events:
        next(iter(events))


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
