"""What OpenAI's Python packages do with the server, unmodified: clients.py URL. Prints, by name,
the trace of each row that failed, or null."""
import asyncio
import json
import os
import sys
import traceback

os.environ.update(OPENAI_BASE_URL=sys.argv[1], OPENAI_API_KEY="e2b_any",
                  OPENAI_AGENTS_DISABLE_TRACING="1")

import openai  # noqa: E402
from agents import Agent, ModelSettings, Runner, function_tool  # noqa: E402
from agents import OpenAIChatCompletionsModel, SQLiteSession  # noqa: E402
from agents import set_default_openai_client  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

client, ROWS = openai.OpenAI(max_retries=0), []
QUESTION = [{"role": "user", "content": "how long?"}]
CONTEXT = {"context": "x" * 70}


def row(function):
    ROWS.append(function)
    return function


@row
def models():
    names = [model.id for model in client.models.list()]
    assert "droste/turns" in names and "turns" in names
    assert client.models.retrieve("droste/turns").owned_by == "droste"


@row
def completion():
    answer = client.chat.completions.create(model="droste/turns", messages=QUESTION,
                                            extra_body=CONTEXT)
    assert answer.choices[0].message.content == "answer 70"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@row
def completion_stream():
    chunks = list(client.chat.completions.create(
        model="droste/turns", messages=QUESTION, extra_body=CONTEXT, stream=True,
        stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "answer 70"
    assert "llm_query" in "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
    assert chunks[-1].usage.total_tokens > 0


@row
def completion_helper():
    with client.chat.completions.stream(model="droste/turns", messages=QUESTION,
                                        extra_body=CONTEXT) as stream:
        assert stream.get_final_completion().choices[0].message.content == "answer 70"


@row
def completion_async():
    async def main():
        async with openai.AsyncOpenAI() as other:
            answers = await asyncio.gather(*(other.chat.completions.create(
                model="droste/turns", messages=QUESTION, extra_body={"context": "x" * n})
                for n in range(3)))
        return [answer.choices[0].message.content for answer in answers]
    assert asyncio.run(main()) == ["answer 0", "answer 1", "answer 2"]


@row
def retried():
    """A client that gives up after a moment, and whose next try joins the run."""
    waits = openai.OpenAI(timeout=0.7, max_retries=5)
    answer = waits.chat.completions.create(model="droste/slow", messages=QUESTION)
    assert answer.choices[0].message.content == "waited"
    assert answer._request_id


@row
def response():
    answer = client.responses.create(model="droste/turns", input="how long?", extra_body=CONTEXT)
    assert answer.output_text == "answer 70" and answer.usage.total_tokens > 0
    assert client.responses.retrieve(answer.id).output_text == "answer 70"
    assert [item.role for item in client.responses.input_items.list(answer.id)] == ["user"]
    again = client.responses.create(model="droste/turns", input="and now?", extra_body=CONTEXT,
                                    previous_response_id=answer.id)
    assert again.previous_response_id == answer.id and again.output_text == "answer 70"
    client.responses.delete(answer.id)


@row
def approval():
    """A call that waits is an item, and the next request answers it."""
    tools = [{"type": "mcp", "server_label": "ours", "require_approval": "always"}]
    one = client.responses.create(model="droste/asking", input="write it", tools=tools)
    item = one.output[-1]
    assert (item.type, item.name, item.arguments) == ("mcp_approval_request", "write", '{"n": 4}')
    with client.responses.stream(model="droste/asking", previous_response_id=one.id, tools=tools,
                                 input=[{"type": "mcp_approval_response", "approve": True,
                                         "approval_request_id": item.id}]) as stream:
        assert stream.get_final_response().output_text == "wrote 40"


WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
           "additionalProperties": False}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}


@row
def function():
    """The code calls a function of the client; what that returns is the next input."""
    tools = [{"type": "function", "strict": True, **FUNCTION}]
    with client.responses.stream(model="droste/calling", input="q", tools=tools) as stream:
        kinds = [event.type for event in stream]
        one = stream.get_final_response()
    call = one.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call", "get_weather", {"city": "Oslo"})
    assert "response.function_call_arguments.done" in kinds
    two = client.responses.create(
        model="droste/calling", previous_response_id=one.id, tools=tools,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}])
    assert two.output_text == "rain" and two.usage.total_tokens > 0


@row
def completion_function():
    tools = [{"type": "function", "function": FUNCTION}]
    messages = list(QUESTION)
    with client.chat.completions.stream(model="droste/calling", messages=messages,
                                        tools=tools) as stream:
        one = stream.get_final_completion().choices[0]
    call, = one.message.tool_calls
    assert one.finish_reason == "tool_calls" and call.function.name == "get_weather"
    messages += [one.message.model_dump(include={"role", "content", "tool_calls"}),
                 {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    two = client.chat.completions.create(model="droste/calling", messages=messages, tools=tools)
    assert two.choices[0].message.content == "rain"


@row
def image():
    part = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    answer = client.responses.create(model="droste/picture", input=[
        {"role": "user", "content": [{"type": "input_text", "text": "q"}, part]}])
    assert answer.output_text == "8"


@row
def response_stream():
    """The package's helper, which raises if events are out of order."""
    with client.responses.stream(model="droste/turns", input="how long?", extra_body=CONTEXT,
                                 tools=[{"type": "code_interpreter",
                                         "container": {"type": "auto"}}]) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert whole.output_text == "answer 70" and "response.output_text.delta" in kinds
    assert [item.type for item in whole.output].count("code_interpreter_call") == 2


@row
def files():
    made = client.files.create(file=("notes.txt", b"x" * 70), purpose="user_data")
    part = {"type": "file", "file": {"file_id": made.id}}
    answer = client.chat.completions.create(model="droste/turns", messages=[
        {"role": "user", "content": [{"type": "text", "text": "how long?"}, part]}])
    assert answer.choices[0].message.content == "answer 70"
    assert client.files.content(made.id).read() == b"x" * 70
    assert made.id in [one.id for one in client.files.list()]
    assert client.files.delete(made.id).deleted
    whole = client.uploads.upload_file_chunked(file=b"y" * 100, filename="y.txt", bytes=100,
                                               mime_type="text/plain", purpose="user_data",
                                               part_size=40)
    assert whole.status == "completed" and whole.file.bytes == 100
    assert client.files.content(whole.file.id).read() == b"y" * 100


@row
def containers():
    one = client.containers.create(name="work", expires_after={"anchor": "last_active_at",
                                                               "minutes": 5})
    assert client.containers.retrieve(one.id).status == "running"
    assert one.id in [found.id for found in client.containers.list()]
    made = client.containers.files.create(one.id, file=("notes.txt", b"x" * 70))
    stored = client.files.create(file=("more.txt", b"more"), purpose="user_data")
    more = client.containers.files.create(one.id, file_id=stored.id)
    assert {found.path for found in client.containers.files.list(one.id)} == {
        "/data/notes.txt", "/data/more.txt"}
    assert client.containers.files.retrieve(made.id, container_id=one.id).bytes == 70
    assert client.containers.files.content.retrieve(more.id, container_id=one.id).read() == b"more"
    whole = client.responses.create(model="droste/turns", input="how long?", extra_body=CONTEXT,
                                    tools=[{"type": "code_interpreter", "container": one.id}])
    assert {item.container_id for item in whole.output
            if item.type == "code_interpreter_call"} == {one.id}
    client.containers.files.delete(made.id, container_id=one.id)
    client.containers.delete(one.id)
    try:
        client.containers.retrieve(one.id)
        raise AssertionError("it is still there")
    except openai.NotFoundError as why:
        assert why.code == "not_found"


@row
def tools_of_a_provider():
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    answer = client.chat.completions.create(model="tool-calls", messages=QUESTION, tools=tools)
    assert answer.choices[0].message.tool_calls[0].function.name == "weather"


@row
def errors():
    for model, kind in (("none", openai.NotFoundError), ("auth", openai.APIStatusError)):
        try:
            client.chat.completions.create(model=model, messages=QUESTION)
        except kind as why:
            assert why.code in ("model_not_found", "provider_refused"), why
        else:
            raise AssertionError(model)
    try:
        client.chat.completions.create(model="droste/turns", messages=QUESTION,
                                       tools=[{"type": "custom", "custom": {"name": "f"}}])
    except openai.BadRequestError as why:
        assert (why.param, why.type) == ("tools", "invalid_request_error")
    else:
        raise AssertionError("tools")
    try:
        for _ in client.chat.completions.create(model="stream-end", messages=QUESTION, stream=True):
            pass
    except openai.APIError as why:
        assert "before its end" in why.message
    else:
        raise AssertionError("a stream that broke off")


@row
def langchain():
    chat = ChatOpenAI(model="droste/turns", extra_body=CONTEXT)
    answer = chat.invoke([("system", "Be brief."), ("user", "how long?")])
    assert answer.content == "answer 70" and answer.usage_metadata["total_tokens"] > 0
    assert "".join(chunk.content for chunk in chat.stream("how long?")) == "answer 70"
    with_tools = ChatOpenAI(model="tool-calls").bind_tools([{
        "name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}])
    assert with_tools.invoke("hi").tool_calls[0]["name"] == "weather"


@row
def langchain_responses():
    chat = ChatOpenAI(model="droste/turns", extra_body=CONTEXT, use_responses_api=True)
    assert chat.invoke("how long?").text == "answer 70"


@row
def agents_sdk_responses():
    """As the SDK asks unless it is told otherwise, with a session that sends items back."""
    async def main():
        # The SDK takes what stands before the first slash for a provider of its own.
        agent = Agent(name="a", instructions="Be brief.", model="openai/droste/turns",
                      model_settings=ModelSettings(extra_body=CONTEXT))
        session = SQLiteSession("one")
        await Runner.run(agent, "how long?", session=session)
        streamed = Runner.run_streamed(agent, "and now?", session=session)
        async for _ in streamed.stream_events():
            pass
        return streamed.final_output
    set_default_openai_client(openai.AsyncOpenAI())
    assert asyncio.run(main()) == "answer 70"


def chat_agent(model, **more):
    return Agent(name="a", instructions="Be brief.", model=OpenAIChatCompletionsModel(
        model=model, openai_client=openai.AsyncOpenAI()), **more)


@row
def agents_sdk():
    async def main():
        agent = chat_agent("droste/turns", model_settings=ModelSettings(extra_body=CONTEXT))
        whole = await Runner.run(agent, "how long?")
        streamed = Runner.run_streamed(agent, "how long?")
        async for _ in streamed.stream_events():
            pass
        return whole.final_output, streamed.final_output
    assert asyncio.run(main()) == ("answer 70", "answer 70")


def weather_agent(called, make):
    @function_tool
    def get_weather(city: str) -> str:
        called.append(city)
        return "rain"
    return make(tools=[get_weather])


@row
def agents_sdk_with_functions():
    """The run's code calls the agent's tool: by responses, streamed or not, and by chat."""
    async def main():
        called = []
        for make in (lambda **more: Agent(name="a", model="openai/droste/calling", **more),
                     lambda **more: chat_agent("droste/calling", **more)):
            agent = weather_agent(called, make)
            assert (await Runner.run(agent, "q")).final_output == "rain"
            streamed = Runner.run_streamed(agent, "q")
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == "rain"
        return called
    set_default_openai_client(openai.AsyncOpenAI())
    assert asyncio.run(main()) == ["Oslo"] * 4


@row
def langchain_with_functions():
    model = ChatOpenAI(model="droste/calling", max_retries=0).bind_tools(
        [{"type": "function", "function": FUNCTION}])
    one = model.invoke("q")
    call, = one.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Oslo"})
    two = model.invoke([("user", "q"), one, {"role": "tool", "tool_call_id": call["id"],
                                             "content": "rain"}])
    assert two.content == "rain"


@row
def agents_sdk_with_tools():
    """An agent of a provider's model, whose tool is asked for by that."""
    called = []

    @function_tool
    def weather() -> str:
        called.append(1)
        return "sunny"
    agent = chat_agent("tool-calls", tools=[weather], tool_use_behavior="stop_on_first_tool")
    assert Runner.run_sync(agent, "hi").final_output == "sunny" and called


def main():
    traces = {}
    for function in ROWS:
        try:
            function()
            traces[function.__name__] = None
        except Exception:   # reported by the test
            traces[function.__name__] = traceback.format_exc()
    print(json.dumps(traces))


main()
