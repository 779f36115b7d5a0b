"""The settings as keywords, for type checkers and completion.

scripts/settings-types writes this file from the table of settings.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence, TypedDict, Union

Switch = Optional[Union[bool, str]]
Number = Optional[Union[int, float, str]]
Size = Optional[Union[int, str]]
Path = Optional[Union[str, "os.PathLike[str]"]]
Text = Optional[str]
Secret = Optional[Union[str, Callable[[], str]]]
Texts = Optional[Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]],
                       Mapping[str, Any]]]


class Settings(TypedDict, total=False):
    """The settings of docs/configuration.md, with `_` for `-`."""
    #: The model from this depth on, up to the next depth that has one: 1 for calls of the root's
    #: code, 2 for calls of its children's code; may be repeated.
    depth_model: Texts
    #: An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.
    base_url: Text
    #: The key for OpenAI, or for the server of base-url; from the environment or the configuration
    #: file only.
    api_key: Secret
    #: The key for Anthropic; see api-key.
    anthropic_api_key: Secret
    #: A different server for Anthropic's Messages API.
    anthropic_base_url: Text
    #: The key for Gemini, also from GOOGLE_API_KEY; see api-key.
    gemini_api_key: Secret
    #: A different server for Gemini's generateContent API.
    gemini_base_url: Text
    #: The key for Azure OpenAI; see api-key.
    azure_api_key: Secret
    #: Your Azure resource, such as https://NAME.openai.azure.com.
    azure_endpoint: Text
    #: The version of Azure's older API, which has deployments in the URL.
    azure_api_version: Text
    #: The key for OpenRouter; see api-key.
    openrouter_api_key: Secret
    #: A different server for OpenRouter's API.
    openrouter_base_url: Text
    #: The key for Portkey; see api-key.
    portkey_api_key: Secret
    #: A different server for Portkey's API.
    portkey_base_url: Text
    #: The key for a vLLM server; see api-key.
    vllm_api_key: Secret
    #: A vLLM server; by default base-url, or else http://127.0.0.1:8000/v1.
    vllm_base_url: Text
    #: Trust the certificates in this file instead of the system's.
    ca_file: Path
    #: Append every model call to this file: --model replay:FILE answers from it.
    record: Path
    #: Cache model answers in this file and reuse them for identical calls.
    cache: Path
    #: Send identical concurrent calls once and share the answer.
    deduplicate: Switch
    #: Prices of models, which override the built-in ones: MODEL INPUT OUTPUT [CACHED] on each line.
    prices: Path
    #: Request streamed answers from the provider.
    stream: Switch
    #: Maximum concurrent model calls to one host.
    concurrency: Number
    #: Maximum concurrent calls to one model; 0: limited by concurrency only.
    model_concurrency: Number
    #: Maximum requests to one model in any minute; 0: no limit. Nodes of a cluster share it.
    requests_per_minute: Number
    #: The same for tokens of requests and answers together.
    tokens_per_minute: Number
    #: Further attempts after a transient failure.
    retries: Number
    #: Maximum tokens of one answer; 0: the provider's default.
    max_tokens: Number
    #: The same for calls by code and for child runs; by default as max-tokens.
    sub_max_tokens: Number
    #: A sampling parameter, such as temperature=0.2, top_p=0.9 or seed=7; may be repeated.
    sampling: Texts
    #: The same for calls by code and for child runs; by default as sampling.
    sub_sampling: Texts
    #: Time limit of one model call; 0: none.
    llm_call_timeout: Number
    #: Time limit for connecting to a provider.
    connect_timeout: Number
    #: Time limit for the first byte of an answer; 0: only llm-call-timeout.
    first_token_timeout: Number
    #: Longest pause between two parts of an answer.
    stall_timeout: Number
    #: Where sandboxes run: local, docker, daytona, prime, e2b, modal, or an environment of your
    #: own.
    env: Text
    #: How local sandboxes are isolated: auto, full, light, landlock, process.
    isolation: Text
    #: User ids for the local sandboxes that root starts, one for each; `auto`: 1900000000 to
    #: 1900065535, if available; `shared`: one for all.
    sandbox_users: Text
    #: The interpreter, 3.8 or newer; by default python3 of the virtual environment or of PATH.
    python: Path
    #: The container image; by default python:3.12-slim. For local sandboxes, whose default is none:
    #: oci:DIR[:TAG], docker-archive:FILE, or a name for skopeo to fetch.
    image: Any
    #: Start the sandbox from this snapshot of the provider instead of an image.
    snapshot: Text
    #: When to fetch the image: missing, always, never.
    pull: Text
    #: The container's network: none, host, bridge, or a network of the daemon; for a cloud's
    #: sandbox: none, open.
    network: Text
    #: Let the sandbox reach this address range (CIDR) or domain, and nothing else; may be repeated.
    network_allow: Texts
    #: The user of the container's processes: UID[:GID] or a name; by default nobody if you are
    #: root, otherwise your own.
    user: Text
    #: The container's system call filter: droste (the list of local sandboxes), daemon (its own),
    #: or auto: droste, unless the daemon accepts no filter or gpus is set.
    seccomp: Text
    #: Make the image's files read-only.
    read_only_root: Switch
    #: The root directory of local sandboxes: read-only, or private: writable, in memory, with
    #: /home/user.
    root: Text
    #: A directory with a Linux system whose files and Python local sandboxes have instead of this
    #: machine's, read-only.
    rootfs: Text
    #: How much may be written to the image's file system, if the daemon's storage driver can limit
    #: it; 0: no limit.
    disk_size: Size
    #: GPUs for the container: all, a number, or device=ID,...
    gpus: Text
    #: Devices of this machine that the sandbox may use, with their driver: nvidia, all of its GPUs,
    #: or nvidia:N,N,...; may be repeated.
    device: Texts
    #: A label for the container; may be repeated.
    label: Texts
    #: What sandboxes of the same kind share: none, or container, where each has its own processes.
    reuse: Text
    #: The provider's region for the sandbox.
    region: Text
    #: The Modal app that the sandbox belongs to.
    app_name: Text
    #: Continue in this sandbox of the provider, with its files, instead of a new one.
    sandbox: Text
    #: What happens to the provider's sandbox when the session ends: delete, stop.
    on_close: Text
    #: Idle time after which the provider stops the sandbox; 0: the environment's default.
    idle_timeout: Number
    #: An environment variable for the sandbox's processes; may be repeated.
    env_var: Texts
    #: Modules to import in advance: once for all sandboxes, before they are cloned; may be
    #: repeated.
    preload: Texts
    #: Python packages for local sandboxes, such as 'numpy,pandas>=2', built once and shared; may be
    #: repeated.
    packages: Texts
    #: The same from a requirements file, pyproject.toml, pylock.toml or uv.lock; hashes in it are
    #: enforced; may be repeated.
    requirements: Texts
    #: A directory of wheels in which packages are found, too; may be repeated.
    find_links: Texts
    #: The index of packages; by default as pip is configured; none: only find-links, without a
    #: network.
    package_index: Text
    #: A further destination that the build of packages may reach, besides the index; may be
    #: repeated.
    package_hosts: Texts
    #: Also build packages from source: their build scripts run in the sandbox of the build.
    sdists: Switch
    #: Let code install packages for its session: install_packages() and lines such as '%pip install
    #: NAME'.
    allow_install: Switch
    #: How often the code of a session or run may install packages.
    max_installs: Number
    #: How much disk a build of packages may use, downloads included.
    packages_size: Size
    #: Time limit of a build of packages.
    packages_timeout: Number
    #: Show the sandbox this path, read-only; may be repeated.
    read: Texts
    #: Python code to run first in each session.
    setup_code: Text
    #: Run setup-code before each later cell, too, as a part of it.
    setup_each: Switch
    #: A program on this machine that code may call as a function; it runs with your rights; may be
    #: repeated.
    tool: Texts
    #: An MCP server whose functions code may call as NAME.FUNCTION: a command, a URL, or a JSON
    #: object as agents have it; may be repeated.
    mcp_server: Texts
    #: Functions that the client of the run answers, a list of {name, description, parameters}: code
    #: calls them as functions.NAME, and waits for the result.
    client_tools: Text
    #: Time limit of one call of a host tool; 0: none.
    tool_timeout: Number
    #: Ask before each call of this host tool, and wait for the approval; NAME.*: of an MCP
    #: server's; *: of all of them; may be repeated.
    ask: Texts
    #: Ask before the run costs more than this, by known prices, and again after each further amount
    #: of it; 0: never.
    ask_cost: Number
    #: How long a call waits for its approval; 0: without a limit.
    ask_timeout: Number
    #: What happens to a call whose approval did not come in time: deny, approve.
    ask_default: Text
    #: Announce each call that waits for its approval by a signed POST to this URL, whose response
    #: may decide.
    ask_webhook: Text
    #: The secret that signs these requests, of 16 characters or more; from the environment or the
    #: configuration file only.
    ask_webhook_secret: Text
    #: Maximum calls of host tools, including those by child runs.
    max_tool_calls: Number
    #: Give child runs the tools, too.
    sub_tools: Switch
    #: Provide functions for texts and files (grep, chunk_by_size, read_file...) in the sandbox, and
    #: describe them to the model.
    helpers: Switch
    #: Let grep search for plain text, ignoring case, unless a call says otherwise.
    literal_grep: Switch
    #: A name that gets the host's value back after each cell, even if code has rebound it: a
    #: context, answer, a function such as llm_query; may be repeated.
    restore_name: Texts
    #: Restrict what cells import, call and open: against accidents, not a security boundary.
    rules: Switch
    #: With rules: a module, or a directory of modules, that cells may import too; may be repeated.
    allow_import: Texts
    #: With rules: let cells import those parts of the standard library that only compute; no: only
    #: what allow-import and preload name.
    standard_imports: Switch
    #: Sandboxes to keep ready for the next start; unless set, only after the first start.
    pool: Number
    #: Prepare the interpreter of local sandboxes for many starts; no: start the first one sooner
    #: and the others later.
    warm_up: Switch
    #: Keep Python objects of 4 MiB and more in huge pages: forks of local sessions with gigabytes
    #: cost less, but on some virtual machines filling memory costs more.
    huge_pages: Switch
    #: Give each local sandbox a network of its own that leads back: its programs reach each other
    #: at 127.0.0.1, and nothing else.
    loopback: Switch
    #: Let programs of local sandboxes use epoll, as Node and Go want; the kernel counts its watches
    #: for each user.
    epoll: Switch
    #: A destination that local sandboxes may reach, through a proxy in the host: HOST:PORT,
    #: *.HOST:PORT, [METHOD] http[s]://HOST/PATH or all (public addresses), with 'ask ' before it if
    #: an approval is needed; or none; may be repeated.
    allow_net: Texts
    #: With allow-net: how many bytes a sandbox may send and receive in all; 0: no limit.
    max_net_bytes: Size
    #: With allow-net: how many requests and tunnels a sandbox may begin, refused ones included; 0:
    #: no limit.
    max_net_requests: Number
    #: With allow-net: how long one request or tunnel may take; 0: no limit.
    net_timeout: Number
    #: With allow-net: trust the certificates in this file, besides the system's, for servers of
    #: sandboxes.
    net_ca: Path
    #: With allow-net: a secret that code may use and never see: NAME[=SOURCE] for HOST[:PORT]
    #: [PLACE], as in 'OPENAI_API_KEY for api.openai.com'; may be repeated.
    secret: Texts
    #: How long a local sandbox may wait for descriptors, memory or processes to become free,
    #: instead of failing; 0: fail at once.
    start_wait: Number
    #: Time limit of the session or of the run; 0: no limit.
    timeout: Number
    #: Time limit of one cell: it is interrupted, and its variables stay; 0: no limit. With rules:
    #: 30, unless set.
    execute_timeout: Number
    #: Upper bound of execute-timeout; 0: none. With rules: 300, unless set.
    execute_timeout_cap: Number
    #: How long a call by the guest's code waits for its answer; 0: no limit. With rules: 30, unless
    #: set.
    broker_timeout: Number
    #: Time between the interrupt and the kill.
    grace: Number
    #: auto: keep the state before each cell while it runs. If the cell is killed, for example at a
    #: limit, the session goes on from that state.
    checkpoint: Text
    #: Memory that the checkpoints of a session may hold together; 0: as much as memory.
    checkpoint_memory: Size
    #: Memory limit of the sandbox; without a cgroup, the limit of each process, and of their total
    #: as the host measures it.
    memory: Size
    #: Maximum processes and threads in the sandbox.
    processes: Number
    #: Processors that the sandbox may use, such as 0.5; needs a cgroup; 0: no limit.
    cpus: Number
    #: Processor time limit of each process in the sandbox, in whole seconds; 0: no limit.
    cpu_time: Number
    #: Maximum open files of each process in the sandbox.
    open_files: Number
    #: Maximum size of a file in the sandbox.
    file_size: Size
    #: Size of the sandbox's private /tmp.
    tmp_size: Size
    #: A directory that outlives the sandbox: mounted at /data, created on first use.
    volume_name: Text
    #: The directory layout of the sandbox: droste, or daytona (/home/daytona) for programs that
    #: expect it.
    layout: Text
    #: The directory of the volumes; by default `volumes` beside the database.
    volume_root: Path
    #: The directory of a provider's volume to mount instead of the whole volume.
    volume_subpath: Path
    #: Size limit of a new volume; `droste volume limit` changes it.
    volume_size: Size
    #: Maximum files and directories in a new volume.
    volume_files: Number
    #: A git repository to copy into the sandbox: https://, ssh:// or file:///.
    repo_url: Text
    #: A branch, tag or commit id of repo-url; by default the remote's HEAD.
    repo_ref: Text
    #: Time limit for fetching the repository.
    repo_timeout: Number
    #: A file or directory to copy into the sandbox; may be repeated.
    context_path: Texts
    #: Size limit of the directory with these copies, including what the session writes there.
    workspace_size: Size
    #: Maximum files and directories in it.
    workspace_files: Number
    #: How much of a cell's output is kept, for each stream; the middle of longer output is left
    #: out.
    output_limit: Size
    #: Size limit of the rich results of a cell; a text replaces those beyond it.
    results_limit: Size
    #: Size limit of one of these results.
    result_size: Size
    #: Maximum turns of the model.
    max_iterations: Number
    #: Maximum depth of child runs (rlm_query) below each other; 0: none.
    max_recursion_depth: Number
    #: Maximum turns of the model in a child run.
    delegate_max_iterations: Number
    #: Maximum concurrent child runs, at each depth.
    max_children: Number
    #: Maximum model calls by the guest's code; turns of child runs count, too.
    max_llm_calls: Number
    #: Cost limit of the run, by known prices; 0: no limit.
    max_cost: Number
    #: Maximum input tokens of the whole run; 0: no limit.
    max_input_tokens: Number
    #: Maximum output tokens of the whole run; 0: no limit.
    max_output_tokens: Number
    #: Maximum tokens of the whole run; 0: no limit.
    max_total_tokens: Number
    #: How much a run and its child runs may add to the database, before compression; 0: no limit.
    max_record_size: Size
    #: How much of that the rich results of cells may take; 0: a quarter. A text takes the place of
    #: others.
    max_results_size: Size
    #: How many characters of a cell's output the model sees.
    max_output_chars: Number
    #: How many images of a turn's rich results the model sees; unless you set it, only models that
    #: are known to read images see any.
    max_images: Number
    #: Show PNG and JPEG images among the contexts to the model, with the question.
    show_images: Switch
    #: Show the model the image at this https: address with the question; its provider reads it; may
    #: be repeated.
    image_url: Texts
    #: Share of the context window, such as 0.8, at which a summary replaces earlier turns; 0:
    #: never.
    compaction: Number
    #: The model's context window in tokens, for compaction; 0: built in for known models, else
    #: 128000.
    model_window: Number
    #: How many replies the model gives in each turn; each runs in a fork of the session, and one is
    #: kept.
    candidates: Number
    #: Consecutive turns with failing code after which the run ends; 0: no limit.
    max_errors: Number
    #: The span that a run is part of, as of W3C Trace Context; calls of models carry it on, and
    #: `droste runs export --format otlp` has the run's spans.
    traceparent: Text
    #: The type of the context: auto, text, bytes, json, jsonl.
    context_type: Text
    #: Size limit of one context.
    context_size: Size
    #: Include only matching files of a directory in the context; may be repeated.
    include: Texts
    #: Added to the system prompt.
    instructions: Text
    #: Replaces Droste's system prompt; `droste prompts system` prints that, with its placeholders.
    system_prompt: Text
    #: A JSON Schema for the answer; an answer that does not fit goes back to the model.
    answer_schema: Text
    #: Instead of a schema: a field of the answer, of a JSON type (string, integer, number, boolean,
    #: array, object, null); may be repeated.
    answer_field: Texts
    #: Save the sandbox's files that match, such as 'out/*.png', when a run ends; may be repeated.
    artifacts: Texts
    #: Where artifacts are saved; those of a batch in a directory for each task.
    artifacts_dir: Path
    #: The database of runs; by default runs.db in the data directory.
    database: Path


class InterpreterSettings(Settings, total=False):
    """Keywords of Interpreter, beside its parameters."""
    tool_data: Texts


class BatchSettings(Settings, total=False):
    """Keywords of batch() and abatch(); `concurrency` is the number of tasks at once."""
    model: Text
    template: Text
    sub_model: Text
    tools: Texts
    tool_data: Texts
    grader: Text
    select: Text
    grader_timeout: Optional[float]
    again: bool
    context: Optional[Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]],
                            Mapping[str, Union[str, "os.PathLike[str]"]]]]
    batch_max_calls: Optional[int]
    batch_max_tokens: Optional[int]
    batch_max_cost: Optional[float]
    batch_timeout: Optional[float]
    on_result: Optional[Callable[[Any], Any]]
    on_state: Optional[Callable[[Any], Any]]
    on_notice: Optional[Callable[[str], Any]]
    #: The address of `droste serve`, which does the work.
    server: Text


class RLMSettings(Settings, total=False):
    """Keywords of RLM, beside its parameters: settings, and arguments of alexzhang13/rlm."""
    template: Text
    backend: Optional[str]
    backend_kwargs: Optional[Mapping[str, Any]]
    other_backends: Optional[Sequence[str]]
    other_backend_kwargs: Optional[Sequence[Mapping[str, Any]]]
    environment: Any
    environment_kwargs: Optional[Mapping[str, Any]]
    sampling_args: Optional[Mapping[str, Any]]
    sub_sampling_args: Optional[Mapping[str, Any]]
    user_prologue: Optional[str]
    orchestrator: bool
    custom_tools: Optional[Mapping[str, Any]]
    custom_sub_tools: Optional[Mapping[str, Any]]
    custom_system_prompt: Optional[str]
    compaction_threshold_pct: Optional[float]
    depth: int
    max_depth: Optional[int]
    max_budget: Optional[float]
    max_timeout: Optional[float]
    max_concurrent_subcalls: Optional[int]
    verbose: bool
    logger: Any
    persistent: bool
    on_subcall_start: Any
    on_subcall_complete: Any
    on_iteration_start: Any
    on_iteration_complete: Any
