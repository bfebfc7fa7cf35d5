from openai import AsyncOpenAI
from report import OPENAI_URL, QUESTION, TWENTY, equal, fails_in_words, report
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

client = AsyncOpenAI(base_url=OPENAI_URL, api_key="placeholder", max_retries=0)
settings = OpenAIChatPromptExecutionSettings()
seen = []


class Weather:
    @kernel_function(name="get", description="The weather")
    def get(self, city: str) -> str:
        seen.append(city)
        return "sunny"


def chat(model):
    return OpenAIChatCompletion(ai_model_id=model, async_client=client)


def history():
    asked = ChatHistory()
    asked.add_user_message(QUESTION)
    return asked


async def ask(model):
    return str(await chat(model).get_chat_message_content(history(), settings))


async def whole():
    equal(await ask("sim-echo"), QUESTION)


async def pieces(model):
    return [piece async for piece in chat(model).get_streaming_chat_message_content(history(), settings)]


async def stream():
    equal("".join(str(piece) for piece in await pieces("sim-20x0") if piece), TWENTY)


async def usage():
    counted = [piece.metadata.get("usage") for piece in await pieces("sim-20x0") if piece]
    counted = [one for one in counted if one and one.prompt_tokens]
    return sum(one.prompt_tokens for one in counted), sum(one.completion_tokens for one in counted)


async def tools():
    kernel = Kernel()
    kernel.add_plugin(Weather(), "weather")
    with_tools = OpenAIChatPromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
    answer = await chat("sim-tools").get_chat_message_content(history(), with_tools, kernel=kernel)
    equal((str(answer), seen), ("The tool has answered.", ["sim"]))


async def abort():
    chunks = chat("sim-500x20").get_streaming_chat_message_content(history(), settings)
    await anext(chunks)
    await chunks.aclose()


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": stream,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(ask),
        "abort": abort,
    }
)
