from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from report import OPENAI_URL, QUESTION, TWENTY, equal, fails_in_words, report

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=OPENAI_URL, api_key="placeholder", max_retries=0)
seen = []


@function_tool
def get_weather(city: str) -> str:
    """The weather."""
    seen.append(city)
    return "sunny"


def agent(model, **more):
    return Agent(name="a", model=OpenAIChatCompletionsModel(model=model, openai_client=client), **more)


async def streamed(it):
    result = Runner.run_streamed(it, QUESTION)
    deltas = []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas.append(event.data.delta)
    return result, "".join(deltas)


async def whole():
    equal((await Runner.run(agent("sim-echo"), QUESTION)).final_output, QUESTION)


async def stream():
    result, _ = await streamed(agent("sim-20x0"))
    equal(result.final_output, TWENTY)


async def loop():
    _, text = await streamed(agent("sim-20x0"))
    equal(text, TWENTY)


async def usage():
    from agents import ModelSettings

    result, _ = await streamed(agent("sim-20x0", model_settings=ModelSettings(include_usage=True)))
    counted = result.context_wrapper.usage
    return counted.input_tokens, counted.output_tokens


async def tools():
    result, _ = await streamed(agent("sim-tools", tools=[get_weather]))
    equal((result.final_output, seen), ("The tool has answered.", ["sim"]))


async def abort():
    result = Runner.run_streamed(agent("sim-500x20"), QUESTION)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            result.cancel()
            break


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(lambda model: Runner.run(agent(model), QUESTION)),
        "abort": abort,
    }
)
