"""A Modal on this machine: the control plane and the task command router, as far as sandboxes need
them, over gRPC in plain HTTP/2 on loopback, with the messages and stubs that come with the package
`modal`.

    python modal_server.py DIRECTORY      (a Python that has `modal`)

A sandbox is a first process in spaces of its own (processes, mounts, and the network where that is
blocked), in whose root there are this machine's programs, empty directories, and its volumes;
programs really run there, with pipes. Without root, they are plain processes.

A volume in a sandbox is a view as of the sandbox's creation. What is written there is in the
volume, and seen by sandboxes that are made from then on, after a commit, which takes its time:
`sync PATH` in the sandbox waits for one (volumes of the second version); one more comes some time
after the sandbox's end, unless it ended by a failure of the machine's. A sandbox that runs sees
what others have committed after TaskReloadVolumes.

It prints a line of JSON with its addresses; then each line of
its input is a command (class Control), answered by a line. At the end of its input all ends.

What is simplified: images are not built (a build that names `no-such-package` fails, with a log),
and resources are only remembered.
"""
import asyncio
import collections
import json
import os
import re
import shutil
import signal
import sys
import time

# Other fakes here are called as the packages that they stand for, which come first therefore.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [*(path for path in sys.path if path and path != HERE), HERE]

from google.protobuf import json_format                     # noqa: E402
from grpclib import GRPCError, Status                       # noqa: E402
from grpclib.events import listen, RecvRequest              # noqa: E402
from grpclib.server import Server                           # noqa: E402
from modal._utils.grpc_utils import custom_detail_codec     # noqa: E402
from modal_proto import api_pb2 as api                      # noqa: E402
from modal_proto import task_command_router_pb2 as router   # noqa: E402
from modal_proto.api_grpc import ModalClientBase            # noqa: E402
from modal_proto.task_command_router_grpc import TaskCommandRouterBase  # noqa: E402

from modal_sandbox import RESULT, Sandbox, token_of  # noqa: E402

TOKEN = ("ak-known", "as-canary-7b1f")
PAGE = 1                    # sandboxes of a list: its client has to ask for more


class Cloud:
    """All that the two services know, and the faults that are to happen."""

    def __init__(self, directory):
        self.directory, self.isolated = (directory,
                                         os.geteuid() == 0 and bool(shutil.which("nsenter")))
        self.apps, self.images, self.volumes, self.sandboxes, self.requests = {}, {}, {}, {}, []
        self.token = token_of({"serial": 0})
        self.router_url, self.faults, self.connections = None, collections.defaultdict(list), set()
        # numbers of bytes of stdout, in turn, after which the connection is cut
        self.cut_after = []
        self.counts, self.token_seconds = collections.Counter(), 1200
        # as long as a commit takes, and the start of a sandbox
        self.commit_seconds, self.start_seconds = 0.2, 0.05

    def volume_path(self, volume_id, below=""):
        path = os.path.join(self.directory, "volumes", volume_id, below.strip("/"))
        os.makedirs(path, exist_ok=True)
        return path

    def sandbox(self, sandbox_id):
        if sandbox_id not in self.sandboxes:
            raise GRPCError(Status.NOT_FOUND, "Sandbox %s not found" % sandbox_id)
        return self.sandboxes[sandbox_id]

    def of_task(self, task_id):
        found = next((s for s in self.sandboxes.values() if s.task_id == task_id), None)
        if found is None or found.result is not None:
            raise GRPCError(Status.NOT_FOUND, "task %s not found" % task_id)
        return found

    async def fault(self, name, **about):
        """Raises what was ordered for the next requests of that name (and, where the order says so,
        about this volume)."""
        self.counts[name] += 1
        fault = next((f for f in self.faults[name]
                      if all(f.get(k, v) == v for k, v in about.items())), None)
        if fault is None:
            return
        fault["times"] -= 1
        if fault["times"] <= 0:
            self.faults[name].remove(fault)
        await asyncio.sleep(fault.get("delay", 0))
        if fault.get("status"):
            policy = ([api.RPCRetryPolicy(retry_after_secs=fault["retry_after"])]
                      if "retry_after" in fault else None)
            raise GRPCError(Status[fault["status"]],
                            fault.get("message", "a fault that was ordered"), policy)


def unimplemented(name):
    async def method(self, stream):
        await stream.recv_message()
        raise GRPCError(Status.UNIMPLEMENTED, "%s is not in this fake" % name)
    return method


def complete(cls):
    """The class, with an answer to each request that it does not know."""
    for base in cls.__mro__:
        for name in getattr(base, "__abstractmethods__", ()):
            if getattr(getattr(cls, name, None), "__isabstractmethod__", False):
                setattr(cls, name, unimplemented(name))
    cls.__abstractmethods__ = frozenset()
    return cls


def answers(method):
    """A method of a request, which returns the reply."""
    async def answer(self, stream):
        request = await stream.recv_message()
        self.cloud.requests.append(request)
        await self.cloud.fault(method.__name__)
        await stream.send_message(await method(self, request))
        await self.cloud.fault(method.__name__ + ".after")
    return answer


@complete
class ControlPlane(ModalClientBase):
    def __init__(self, cloud):
        self.cloud = cloud

    async def check(self, event: RecvRequest):
        metadata, name = event.metadata, event.method_name.rpartition("/")[2]
        for header in ("x-modal-client-version", "x-modal-python-version"):
            if header not in metadata:
                raise GRPCError(Status.FAILED_PRECONDITION, "Missing %s header" % header)
        if metadata.get("x-modal-client-type") != str(api.CLIENT_TYPE_CLIENT):
            raise GRPCError(Status.FAILED_PRECONDITION, "Unknown client type")
        if (metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret")) != TOKEN:
            raise GRPCError(Status.UNAUTHENTICATED,
                            "Token ID is malformed, or the token was revoked")
        if ((name.endswith("V2") or name == "SandboxGetCommandRouterAccess")
            and metadata.get("x-modal-auth-token") != self.cloud.token):
            raise GRPCError(Status.UNAUTHENTICATED, "the auth token is not valid")

    @answers
    async def ClientHello(self, request):
        return api.ClientHelloResponse()

    @answers
    async def AuthTokenGet(self, request):
        return api.AuthTokenGetResponse(token=self.cloud.token)

    @answers
    async def AppGetOrCreate(self, request):
        apps = self.cloud.apps
        if (request.app_name not in apps and request.object_creation_type
            != api.OBJECT_CREATION_TYPE_CREATE_IF_MISSING):
            raise GRPCError(Status.NOT_FOUND, "App '%s' not found" % request.app_name)
        return api.AppGetOrCreateResponse(app_id=apps.setdefault(request.app_name,
                                                                 "ap-%022d" % (len(apps) + 1)))

    @answers
    async def EnvironmentGetOrCreate(self, request):
        settings = api.EnvironmentSettings(image_builder_version="2025.06")
        return api.EnvironmentGetOrCreateResponse(environment_id="en-1",
                                                  metadata=api.EnvironmentMetadata(
            name=request.deployment_name or "main", settings=settings))

    @answers
    async def ImageGetOrCreate(self, request):
        whole = request.image.SerializeToString()
        images = self.cloud.images
        found = next((name for name, image in images.items() if image.SerializeToString() == whole),
                     None)
        name = found or "im-%022d" % (len(images) + 1)
        images[name] = request.image
        return api.ImageGetOrCreateResponse(image_id=name,
                                            metadata=api.ImageMetadata(
            image_builder_version="2025.06"))

    def log_of(self, image_id):
        """What its build said, and whether it failed."""
        fails = "no-such-package" in "\n".join(self.cloud.images[image_id].dockerfile_commands)
        lines = (["=> Step 1\n", "ERROR: No matching distribution found for no-such-package\n"]
                 if fails else [])
        return ["Building image %s\n" % image_id, *lines], fails

    async def ImageJoinStreaming(self, stream):
        request = await stream.recv_message()
        await self.cloud.fault("ImageJoinStreaming")
        lines, fails = self.log_of(request.image_id)
        status, why = RESULT.GENERIC_STATUS_SUCCESS, ""
        if fails:
            status, why = (RESULT.GENERIC_STATUS_FAILURE,
                           "Image build for %s failed with the exception:\ntask exited with failure"
                           % request.image_id)
        await stream.send_message(api.ImageJoinStreamingResponse(entry_id="1", task_logs=[
            api.TaskLogs(data=line, file_descriptor=api.FILE_DESCRIPTOR_STDOUT) for line in lines]))
        await stream.send_message(api.ImageJoinStreamingResponse(
            result=RESULT(status=status, exception=why), entry_id="2", eof=True))

    @answers
    async def ImageBuildChainGet(self, request):
        step = api.ImageBuildStep(image_id=request.image_id, builder_app_id="ap-builder",
                                  builder_task_id=request.image_id)
        step.started_at.FromSeconds(int(time.time()) - 60)
        step.finished_at.FromSeconds(int(time.time()))
        return api.ImageBuildChainGetResponse(build_steps=[step])

    @answers
    async def AppFetchLogs(self, request):
        items = [api.TaskLogs(data=line, timestamp=time.time(),
                              file_descriptor=api.FILE_DESCRIPTOR_STDOUT)
                 for line in self.log_of(request.task_id)[0]]
        return api.AppFetchLogsResponse(
            batches=[api.TaskLogsBatch(task_id=request.task_id, items=items[-request.limit:])])

    @answers
    async def ImageFromId(self, request):
        if request.image_id not in self.cloud.images:
            raise GRPCError(Status.NOT_FOUND, "Image %s not found" % request.image_id)
        return api.ImageFromIdResponse(image_id=request.image_id)

    @answers
    async def VolumeGetOrCreate(self, request):
        volumes = self.cloud.volumes
        if (request.deployment_name not in volumes
            and request.object_creation_type != api.OBJECT_CREATION_TYPE_CREATE_IF_MISSING):
            raise GRPCError(Status.NOT_FOUND, "Volume '%s' not found" % request.deployment_name)
        name = volumes.setdefault(request.deployment_name, "vo-%022d" % (len(volumes) + 1))
        return api.VolumeGetOrCreateResponse(volume_id=name, version=request.version,
                                             metadata=api.VolumeMetadata(
            name=request.deployment_name, version=request.version))

    async def create(self, request, second):
        definition, app = request.definition, request.app_id
        if app not in self.cloud.apps.values():
            raise GRPCError(Status.NOT_FOUND, "App %s not found" % app)
        if definition.image_id not in self.cloud.images:
            raise GRPCError(Status.NOT_FOUND, "Image %s not found" % definition.image_id)
        if not 1 <= definition.timeout_secs <= 24 * 3600:
            raise GRPCError(Status.INVALID_ARGUMENT,
                            "timeout must be between 1 second and 24 hours")
        live = [s for s in self.cloud.sandboxes.values() if s.app_id == app and s.result is None]
        if definition.name and any(s.definition.name == definition.name for s in live):
            raise GRPCError(Status.ALREADY_EXISTS,
                            "Sandbox with name '%s' already exists" % definition.name)
        made = Sandbox(self.cloud, app, definition, request.tags, second)
        self.cloud.sandboxes[made.id] = made
        await made.start()
        return made

    @answers
    async def SandboxCreateV2(self, request):
        made = await self.create(request, True)
        return api.SandboxCreateV2Response(
            sandbox_id=made.id, task_id=made.task_id,
            metadata=api.SandboxHandleMetadata(app_id=made.app_id),
            command_router_access=api.CommandRouterAccess(url=self.cloud.router_url,
                                                          jwt=made.new_token()))

    @answers
    async def SandboxCreate(self, request):
        made = await self.create(request, False)
        return api.SandboxCreateResponse(sandbox_id=made.id,
                                         metadata=api.SandboxHandleMetadata(app_id=made.app_id))

    @answers
    async def SandboxGetFromNameV2(self, request):
        app = self.cloud.apps.get(request.app_name)
        for one in self.cloud.sandboxes.values():
            if (one.second and one.app_id == app and one.result is None
                and one.definition.name == request.sandbox_name):
                return api.SandboxGetFromNameResponse(
                    sandbox_id=one.id, metadata=api.SandboxHandleMetadata(app_id=app))
        raise GRPCError(Status.NOT_FOUND, "Sandbox with name '%s' not found" % request.sandbox_name)

    async def task_id(self, request):
        one = self.cloud.sandbox(request.sandbox_id)
        return api.SandboxGetTaskIdResponse(task_id=one.task_id, task_result=one.result)

    async def wait(self, request):
        one = self.cloud.sandbox(request.sandbox_id)
        result = await one.ended(request.timeout)
        return api.SandboxWaitResponse(result=result, metadata=api.SandboxHandleMetadata(
            app_id=one.app_id, result=result))

    async def terminate(self, request):
        one = self.cloud.sandbox(request.sandbox_id)
        before = one.result
        await one.finish(RESULT.GENERIC_STATUS_TERMINATED)
        return api.SandboxTerminateResponse(existing_result=before)

    async def list(self, request):
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        found = [
            api.SandboxInfo(id=s.id, created_at=s.created, app_id=s.app_id,
                            tags=[api.SandboxTag(tag_name=k, tag_value=v)
                                  for k, v in s.tags.items()])
            for s in self.cloud.sandboxes.values()
            if (request.include_finished or s.result is None)
            and (not request.before_timestamp or s.created < request.before_timestamp)
            and (not request.app_id or s.app_id == request.app_id)
            and wanted.items() <= s.tags.items()]
        return api.SandboxListResponse(sandboxes=sorted(found,
                                                        key=lambda one: -one.created_at)[:PAGE])

    async def tags(self, request):
        one = self.cloud.sandbox(request.sandbox_id)
        return api.SandboxTagsGetResponse(tags=[api.SandboxTag(tag_name=k, tag_value=v)
                                                for k, v in one.tags.items()])

    async def access(self, request):
        ids = {name: getattr(request, name, "") for name in ("sandbox_id", "task_id")}
        one = (self.cloud.sandbox(ids["sandbox_id"]) if ids["sandbox_id"]
               else self.cloud.of_task(ids["task_id"]))
        if one.result is not None:
            raise GRPCError(Status.FAILED_PRECONDITION, "Sandbox has already completed")
        return one

    @answers
    async def SandboxGetCommandRouterAccess(self, request):
        return api.SandboxGetCommandRouterAccessResponse(
            url=self.cloud.router_url, jwt=(await self.access(request)).new_token())

    @answers
    async def TaskGetCommandRouterAccess(self, request):
        return api.TaskGetCommandRouterAccessResponse(url=self.cloud.router_url,
                                                      jwt=(await self.access(request)).new_token())


def named(name, method):
    """The same as a request of another name."""
    async def same(self, request):
        return await method(self, request)
    same.__name__ = name
    setattr(ControlPlane, name, answers(same))


for _version in ("", "V2"):
    named("SandboxGetTaskId" + _version, ControlPlane.task_id)
    named("SandboxWait" + _version, ControlPlane.wait)
    named("SandboxTerminate" + _version, ControlPlane.terminate)
    named("SandboxList" + _version, ControlPlane.list)
    named("SandboxTagsGet" + _version, ControlPlane.tags)


@complete
class Router(TaskCommandRouterBase):
    def __init__(self, cloud):
        self.cloud = cloud

    async def check(self, event: RecvRequest):
        kind, _, token = event.metadata.get("authorization", "").partition(" ")
        if kind != "Bearer" or all(one.tokens.get(token, 0) < time.time()
                                   for one in self.cloud.sandboxes.values()):
            raise GRPCError(Status.UNAUTHENTICATED, "the token is not valid")

    def program(self, request):
        programs = self.cloud.of_task(request.task_id).programs
        if request.exec_id not in programs:
            raise GRPCError(Status.NOT_FOUND, "exec %s not found" % request.exec_id)
        return programs[request.exec_id]

    @answers
    async def TaskExecStart(self, request):
        if sum(map(len, request.command_args)) > 65536:
            raise GRPCError(Status.INVALID_ARGUMENT, "the arguments are too long")
        await self.cloud.of_task(request.task_id).execute(request)
        return router.TaskExecStartResponse()

    async def TaskExecStdioRead(self, stream):
        request = await stream.recv_message()
        await self.cloud.fault("TaskExecStdioRead")
        program, offset = self.program(request), request.offset
        out = request.file_descriptor == router.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        self.cloud.connections.add(stream)
        try:
            while True:
                data = await program.outputs[0 if out else 1].after(offset)
                self.cloud.of_task(request.task_id)
                if not data:
                    return
                cut = out and self.cloud.cut_after
                if cut and cut[0] <= len(data):
                    data = data[:cut.pop(0)]
                    if data:
                        await stream.send_message(router.TaskExecStdioReadResponse(data=data))
                    self.cut(stream)
                    return
                if cut:
                    cut[0] -= len(data)
                await stream.send_message(router.TaskExecStdioReadResponse(data=data))
                offset += len(data)
        finally:
            self.cloud.connections.discard(stream)

    @staticmethod
    def cut(stream):
        """The connection is gone, without a word."""
        stream._stream.connection._transport.abort()

    @answers
    async def TaskExecStdinWrite(self, request):
        await self.program(request).write(request.offset, request.data, request.eof)
        self.cloud.requests.pop()
        await self.cloud.fault("TaskExecStdinWrite.done")
        return router.TaskExecStdinWriteResponse()

    @answers
    async def TaskExecPoll(self, request):
        return self.status(router.TaskExecPollResponse, self.program(request).process.returncode)

    @answers
    async def TaskExecWait(self, request):
        return self.status(router.TaskExecWaitResponse, await self.program(request).process.wait())

    @answers
    async def TaskReloadVolumes(self, request):
        for view in self.cloud.of_task(request.task_id).views:
            await view.reload()
        return router.TaskReloadVolumesResponse()

    @staticmethod
    def status(reply, code):
        if code is None:
            return reply()
        return reply(code=code) if code >= 0 else reply(signal=-code)


class Control:
    """What tests order: each method is a command, {"do": its name, …}."""

    def __init__(self, cloud):
        self.cloud = cloud

    async def fail(self, name, **fault):
        """The next `times` requests of that name (NAME.after: their replies) fail."""
        self.cloud.faults[name].append({"times": 1, **fault})

    async def cut(self):
        """All connections of the router that have a stream of output."""
        for stream in list(self.cloud.connections):
            Router.cut(stream)

    async def cut_after(self, numbers):
        """So after so many more bytes of output, again and again."""
        self.cloud.cut_after = list(numbers)
        return len(self.cloud.cut_after)

    async def cuts_left(self):
        return len(self.cloud.cut_after)

    async def tokens(self, seconds):
        """So long are those good that are given for the router from now on."""
        self.cloud.token_seconds = seconds

    async def expire(self):
        """Those that were given until now are no longer good."""
        for one in self.cloud.sandboxes.values():
            one.tokens.clear()

    async def commits(self, seconds):
        """So long takes each commit, those under way too."""
        self.cloud.commit_seconds = seconds

    async def finish(self, status="TERMINATED", exception=""):
        """All sandboxes end: TIMEOUT, IDLE_TIMEOUT, TERMINATED, EVICTED…"""
        for one in list(self.cloud.sandboxes.values()):
            await one.finish(getattr(RESULT, "GENERIC_STATUS_" + status), exception)

    async def sandboxes(self):
        return [{"id": s.id, "live": s.result is None, "tags": s.tags,
                 "definition": json_format.MessageToDict(s.definition),
                 "status": s.result.status if s.result else 0,
                 "image": list(self.cloud.images[s.definition.image_id].dockerfile_commands),
                 "place": s.place, "programs": len(s.programs)}
                for s in self.cloud.sandboxes.values()]

    async def forget(self):
        """Sandboxes that have ended, counts and requests, as if they had never been. Their last
        commits come first: one that came later would take a fault that is ordered for another."""
        self.cloud.cut_after, self.cloud.token_seconds, self.cloud.commit_seconds = [], 1200, 0.2
        for one in list(self.cloud.sandboxes.values()):
            if one.result is not None:
                await one.over.wait()
        self.cloud.sandboxes = {name: s for name, s in self.cloud.sandboxes.items()
                                if s.result is None}
        self.cloud.faults.clear()
        self.cloud.counts.clear()
        self.cloud.requests.clear()

    async def counts(self):
        return self.cloud.counts

    async def apps(self):
        return self.cloud.apps

    async def volumes(self):
        return {name: self.cloud.volume_path(volume) for name, volume in self.cloud.volumes.items()}

    async def router_at(self, url):
        """Where clients are told that the router is: a proxy, for example."""
        self.cloud.router_url = url


async def obey(control):
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        order = json.loads(line)
        try:
            reply = await getattr(control, order.pop("do"))(**order)
        except Exception as e:
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


async def main(directory):
    cloud = Cloud(directory)
    servers = [Server([service(cloud)], status_details_codec=custom_detail_codec)
               for service in (ControlPlane, Router)]
    ports = []
    for server, service in zip(servers, (ControlPlane(cloud), Router(cloud))):
        listen(server, RecvRequest, service.check)
        await server.start("127.0.0.1", 0)
        ports.append(server._server.sockets[0].getsockname()[1])
    cloud.router_url = "http://127.0.0.1:%d" % ports[1]
    print(json.dumps({"server": ports[0], "router": ports[1], "isolated": cloud.isolated}),
          flush=True)
    control = Control(cloud)
    await obey(control)
    await control.finish()
    for one in list(cloud.sandboxes.values()):
        await one.over.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert re.match("/", sys.argv[1]), "a directory, from the root"
    asyncio.run(main(sys.argv[1]))
