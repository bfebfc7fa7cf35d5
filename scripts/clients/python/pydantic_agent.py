from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from report import OPENAI_URL, QUESTION, TWENTY, equal, fails_in_words, report

client = AsyncOpenAI(base_url=OPENAI_URL, api_key="placeholder", max_retries=0)


def agent(model):
    return Agent(OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client)), retries=0)


async def whole():
    equal((await agent("sim-echo").run(QUESTION)).output, QUESTION)


async def stream():
    async with agent("sim-20x0").run_stream(QUESTION) as result:
        equal(await result.get_output(), TWENTY)


async def loop():
    async with agent("sim-20x0").run_stream(QUESTION) as result:
        equal("".join([piece async for piece in result.stream_text(delta=True)]), TWENTY)


async def usage():
    async with agent("sim-20x0").run_stream(QUESTION) as result:
        await result.get_output()
        counted = result.usage() if callable(result.usage) else result.usage
        return counted.input_tokens, counted.output_tokens


async def tools():
    weather = agent("sim-tools")
    seen = []

    @weather.tool_plain
    def get_weather(city: str) -> str:
        seen.append(city)
        return "sunny"

    equal(((await weather.run(QUESTION)).output, seen), ("The tool has answered.", ["sim"]))


async def abort():
    async with agent("sim-500x20").run_stream(QUESTION) as result:
        async for _ in result.stream_text(delta=True):
            break


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(lambda model: agent(model).run(QUESTION)),
        "abort": abort,
    }
)
