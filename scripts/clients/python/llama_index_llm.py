from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from report import OPENAI_URL, QUESTION, TWENTY, equal, fails_in_words, report

MESSAGES = [ChatMessage(role="user", content=QUESTION)]


def llm(model, **more):
    return OpenAILike(
        model=model,
        api_base=OPENAI_URL,
        api_key="placeholder",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
        **more,
    )


def get_weather(city: str) -> str:
    """The weather."""
    return "sunny"


def whole():
    equal(llm("sim-echo").chat(MESSAGES).message.content, QUESTION)


def stream():
    equal(list(llm("sim-20x0").stream_chat(MESSAGES))[-1].message.content, TWENTY)


def loop():
    equal("".join(piece.raw.choices[0].delta.content or "" for piece in llm("sim-20x0").stream_chat(MESSAGES)), TWENTY)


def usage():
    equal([piece.raw.usage for piece in llm("sim-20x0").stream_chat(MESSAGES) if piece.raw.usage], [])
    pieces = llm("sim-20x0", additional_kwargs={"stream_options": {"include_usage": True}}).stream_chat(MESSAGES)
    [usage] = [piece.raw.usage for piece in pieces if piece.raw.usage]
    return usage.prompt_tokens, usage.completion_tokens


def tools():
    model = llm("sim-tools")
    answer = model.chat_with_tools([FunctionTool.from_defaults(get_weather)], user_msg=QUESTION)
    [call] = model.get_tool_calls_from_response(answer)
    equal((call.tool_name, call.tool_kwargs), ("get_weather", {"city": "sim"}))


def abort():
    pieces = llm("sim-500x20").stream_chat(MESSAGES)
    next(pieces)
    pieces.close()


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": loop,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(lambda model: llm(model).chat(MESSAGES)),
        "abort": abort,
    }
)
