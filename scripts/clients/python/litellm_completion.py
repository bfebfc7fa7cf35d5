import litellm
from report import MESSAGES, OPENAI_URL, QUESTION, TOOL, TWENTY, equal, fails_in_words, report

litellm.telemetry = False


def create(model, **more):
    return litellm.completion(
        model=f"openai/{model}", api_base=OPENAI_URL, api_key="placeholder", messages=MESSAGES, num_retries=0, max_retries=0, **more
    )


def whole():
    equal(create("sim-echo").choices[0].message.content, QUESTION)


def loop():
    equal("".join(chunk.choices[0].delta.content or "" for chunk in create("sim-20x0", stream=True)), TWENTY)


def stream():
    whole = litellm.stream_chunk_builder(list(create("sim-20x0", stream=True)), messages=MESSAGES)
    equal(whole.choices[0].message.content, TWENTY)


def usage():
    chunks = list(create("sim-20x0", stream=True, stream_options={"include_usage": True}))
    [usage] = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    return usage.prompt_tokens, usage.completion_tokens


def tools():
    [call] = create("sim-tools", tools=[TOOL]).choices[0].message.tool_calls
    equal((call.function.name, "sim" in call.function.arguments), ("get_weather", True))


def abort():
    chunks = create("sim-500x20", stream=True)
    next(iter(chunks))
    chunks.completion_stream.close()


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
