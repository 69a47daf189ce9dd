"""Two tenants of one secured cluster, each on a NodeManager that runs under an OS user of its own: `make test-secure` has this.

Containers run as the user of their NodeManager (DefaultContainerExecutor), so the two are kept apart by node labels. It needs
root, for the two users, who are removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli.dev.daemons import WORKERS, Daemons
from mpca.cli.dev.hadoop import Hadoop
from mpca.cli.dev.realm import REALM, Lives
from mpca.environment import child_environment
from mpca.spark.jvm.hadoop import spark_home
from mpca.spark.yarn.client import application_ids
from tests.hadoop.support import ROOT, SMALL, Submitted, living

pytestmark = [
    pytest.mark.hadoop,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="each tenant has a core of its own"),
    pytest.mark.timeout(1500),
]
#: As `support.QUICK`, without what may lie in a folder that the tenants cannot read.
PLAIN = tuple(f"spark.{one}.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" for one in ("driver", "executor"))
_ADMIN = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
#: Both alone and beside each other are measured so often, for so long.
ROUNDS, WINDOW_S, SETTLE_S = 5, 8.0, 2.0
_YARN = {
    "yarn.node-labels.enabled": "true",
    "yarn.node-labels.fs-store.root-dir": "file://{data}/labels",
    "yarn.acl.enable": "true",
    "yarn.admin.acl": "hdfs",  # whom `Daemons.tool` is
}
_QUEUES = {
    "root.queues": "alice,bob",
    "root.acl_submit_applications": " ",
    "root.acl_administer_queue": " ",
    "root.accessible-node-labels": "alice,bob",
    **{f"root.accessible-node-labels.{one}.capacity": "100" for one in ("alice", "bob")},
    **{
        f"root.{one}.{key}": value.format(one=one)
        for one in ("alice", "bob")
        for key, value in {
            "capacity": "50",
            "state": "RUNNING",
            "acl_submit_applications": "{one}",
            "user-limit-factor": "10",
            "accessible-node-labels": "{one}",
            "accessible-node-labels.{one}.capacity": "100",
            "default-node-label-expression": "{one}",
        }.items()
        for key in (key.format(one=one),)
    },
}


@dataclass
class Tenant:
    """A user of the realm, whose containers run on one NodeManager as one OS user, on one core."""

    name: str  # in the realm; the queue and the label have it too
    number: int  # of the NodeManager
    user: str  # of the machine
    core: int
    cluster: Hadoop
    python: Path
    home: Path

    @property
    def node(self) -> str:
        return f"nodemanager{self.number}"

    @property
    def data(self) -> Path:
        return self.cluster.setup.data / self.node

    @property
    def shared(self) -> str:
        """The run's folder, in a folder of HDFS that both may write into."""
        return f"/shared/{self.name}"

    def words(self) -> list[str]:
        """What stands before a command that is to run as this tenant."""
        return ["taskset", "-c", str(self.core), "setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]

    def env(self) -> dict[str, str]:
        realm = self.cluster.setup.realm
        assert realm is not None
        return {"HOME": str(self.home), "KRB5CCNAME": f"FILE:{self.home}/cc", **python_env(self.python)}

    def reads(self, paths: list[str]) -> dict[str, Any]:
        """What `trespass.py` gets, as this tenant's OS user."""
        command = [*self.words(), str(self.python), str(self.home.parent / "trespass.py")]
        done = subprocess.run(
            command,
            input=json.dumps(paths),
            capture_output=True,
            text=True,
            check=True,
            env=child_environment(**self.env()),
            cwd="/",
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def submit(self, folder: Path) -> Submitted:
        """`mpca submit` in cluster mode, as this tenant."""
        realm = self.cluster.setup.realm
        assert realm is not None
        sets = (
            *(*SMALL, *PLAIN, f"run.dir={self.cluster.hdfs_url}{self.shared}", "backup.interval=10s"),
            *("objectives.target_error=0.0", "objectives.max_time=1h", "objectives.evaluate_every=30s"),
            *(f"spark.kerberos.principal={self.name}@{REALM}", f"spark.kerberos.keytab={self.home}/keytab"),
            # What a cluster that keeps users apart has in its spark-defaults.conf.
            "spark.acls.enable=true",
            *(
                f"spark.{where}.{key}={value}"
                for where in ("executorEnv", "yarn.appMasterEnv")
                for key, value in python_env(self.python).items()
            ),
        )
        words = [
            "submit",
            str(ROOT / "conf" / "digits.toml"),
            "--jars-on-nodes",
            "--deploy-mode",
            "cluster",
            "--queue",
            self.name,
        ]
        for one in sets:
            words += ["--set", one]
        log = folder / f"{self.name}.log"
        return Submitted(*self.words(), str(self.python), "-m", "mpca.cli", *words, cwd=self.home, log=log, env=self.env())

    def processes(self) -> list[psutil.Process]:
        """All that lives as this tenant's OS user, but for the NodeManager."""
        node = self.cluster.pid(self.node)
        found = []
        for one in psutil.process_iter(["username", "status"]):
            if one.info["username"] == self.user and one.info["status"] != psutil.STATUS_ZOMBIE and one.pid != node:
                found.append(one)
        return found


def python_env(python: Path) -> dict[str, str]:
    """A Python that the tenants may run finds this checkout and the packages of the one that runs the tests."""
    packages = sysconfig.get_paths()["purelib"]
    return {"PYTHONPATH": f"{ROOT}:{packages}", "LD_LIBRARY_PATH": str(python.parent.parent / "lib")}


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def copied_python(target: Path) -> Path:
    """The interpreter of the tests in a folder that all may read: its own may lie in somebody's home."""
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")
    for part in ("bin", "lib"):
        shutil.copytree(Path(sys.base_prefix, part), target / part, symlinks=True, copy_function=linked, ignore=ignored)
    return target / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def with_properties(file: Path, values: dict[str, str]) -> None:
    """Add properties to a file of Hadoop's: of two with one name the last counts."""
    more = "".join(f"<property><name>{key}</name><value>{value}</value></property>\n" for key, value in values.items())
    file.write_text(file.read_text().replace("</configuration>", f"{more}</configuration>"))


@pytest.fixture(scope="module")
def tenants() -> Iterator[tuple[Tenant, Tenant]]:
    folder = Path(tempfile.mkdtemp(prefix="tenants-"))
    folder.chmod(0o755)
    cluster = Hadoop(folder / "cluster", print)
    users: list[str] = []
    try:
        python = copied_python(folder / "python")
        shutil.copy(ROOT / "tests" / "hadoop" / "programs" / "trespass.py", folder)
        found = []
        for number, name in enumerate(("alice", "bob"), 1):
            user = f"mpca-{name}-{os.getpid()}"
            home = folder / user
            subprocess.run(
                ["useradd", "--create-home", "--home-dir", str(home), "--shell", "/usr/sbin/nologin", user], check=True
            )
            users.append(user)
            home.chmod(0o700)
            found.append(Tenant(name, number, user, number - 1, cluster, python, home))
        cluster.up(secure=Lives())
        with pytest.MonkeyPatch.context() as patch:
            for key, value in cluster.env().items():
                patch.setenv(key, value)
            shutil.copytree(cluster.setup.jars, folder / "jars", copy_function=linked)
            label(cluster)
            for one in found:
                become(one)
            yield found[0], found[1]
    finally:
        cluster.down()
        for user in users:
            subprocess.run(["userdel", "--force", user], check=True, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder)


def label(cluster: Hadoop) -> None:
    """Give each NodeManager a label, and each label to one queue."""
    setup, realm = cluster.setup, cluster.setup.realm
    assert realm is not None
    with_properties(setup.conf / "yarn-site.xml", {key: value.format(data=setup.data) for key, value in _YARN.items()})
    with_properties(
        setup.conf / "capacity-scheduler.xml", {f"yarn.scheduler.capacity.{key}": value for key, value in _QUEUES.items()}
    )
    cluster.restart("resourcemanager")
    admin = Daemons(setup)
    admin.tool(_ADMIN, "-addToClusterNodeLabels", "alice(exclusive=true),bob(exclusive=true)")
    ports = [setup.port(f"nodemanager{number}", "nodemanager_rpc") for number in (1, 2)]
    labels = [f"{host}:{port}={name}" for host, port, name in zip(WORKERS, ports, ("alice", "bob"), strict=True)]
    admin.tool(_ADMIN, "-replaceLabelsOnNode", " ".join(labels), "-failOnUnknownNodes")
    realm.fetch(f"{setup.hdfs_web('namenode')}/webhdfs/v1/shared?op=MKDIRS&permission=1777", "hdfs", "-X", "PUT")


def become(tenant: Tenant) -> None:
    """Start the tenant's NodeManager again as the tenant's OS user, on the tenant's core, with a keytab of its own."""
    cluster, setup, realm = tenant.cluster, tenant.cluster.setup, tenant.cluster.setup.realm
    assert realm is not None
    before = psutil.Process(cluster.pid(tenant.node))
    jars = tenant.home.parent / "jars"
    line = [word.replace(str(setup.jars), str(jars)) for word in before.cmdline()]
    env = {**before.environ(), "HOME": str(tenant.home)}
    cluster.stop(tenant.node)
    node, own = tenant.home / "node.keytab", tenant.home / "keytab"
    kdc = child_environment(KRB5_CONFIG=str(realm.config), KRB5_KDC_PROFILE=str(realm.folder / "kdc.conf"))
    for principal in ("yarn/localhost", f"HTTP/{WORKERS[tenant.number - 1]}"):
        words = ["kadmin.local", "-r", REALM, "ktadd", "-norandkey", "-k", str(node), principal]
        subprocess.run(words, check=True, env=kdc, capture_output=True)
    shutil.copy(realm.keytab(tenant.name), own)
    for one in (node, own):
        one.chmod(0o600)
        shutil.chown(one, tenant.user, tenant.user)
    subprocess.run(["chown", "-R", f"{tenant.user}:{tenant.user}", str(tenant.data)], check=True)
    (setup.data / "tmp").chmod(0o1777)
    keys = ("yarn.nodemanager.keytab", "hadoop.http.authentication.kerberos.keytab")
    more = [word for key in keys for word in ("-D", f"{key}={node}")]
    more += ["-D", "yarn.nodemanager.resource.memory-mb=12288"]  # for the other job beside the run
    with setup.log(tenant.node).open("ab") as log:
        subprocess.run(
            ["setsid", "--fork", *tenant.words(), *line, *more],
            env=env,
            cwd=setup.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    cluster._await(tenant.node)
    assert psutil.Process(cluster.pid(tenant.node)).username() == tenant.user


# ---- the story ----


@dataclass
class Run:
    """A tenant's run, once it trains."""

    tenant: Tenant
    submitted: Submitted
    id: str

    def containers(self) -> list[Path]:
        return sorted(self.tenant.data.glob(f"local/usercache/{self.tenant.name}/appcache/{self.id}/container_*"))

    def records(self) -> Path | None:
        """The driver's own copy of its records."""
        return next(self.tenant.data.glob(f"local/usercache/*/appcache/{self.id}/container_*/mpca-*/records.jsonl"), None)

    def updates(self) -> int:
        """Updates of agents in all cycles so far, once for each shard."""
        file = self.records()
        if file is None:
            return 0
        lines = [
            json.loads(line)
            for line in file.read_text().splitlines()
            if line.startswith('{"kind": "cycle"') and line.endswith("}")
        ]
        return sum(part["tau"] for line in lines for part in line["contributors"].values())


def test_two_tenants_see_nothing_of_each_other_and_keep_their_pace(tenants: tuple[Tenant, Tenant], tmp_path: Path) -> None:
    """Two runs, and a Spark job beside that of the second."""
    runs = []
    end = tenants[0].home.parent / "end"
    other: Submitted | None = None
    try:
        for one in tenants:
            submitted = one.submit(tmp_path)
            runs.append((one, submitted))
        started = [trains(one, submitted) for one, submitted in runs]
        other = beside(tenants[1], tmp_path, end)
        other.until(lambda: "job 1" in other.said(), "jobs of the other application")
        for mine, theirs in (started, started[::-1]):
            assert {one.username() for one in mine.tenant.processes()} == {mine.tenant.user}
            assert {tuple(one.cpu_affinity()) for one in mine.tenant.processes()} == {(mine.tenant.core,)}
            on_the_machine(mine, theirs.tenant)
            on_hdfs(mine, theirs.tenant)
            on_pages(mine, theirs.tenant)
        pace(started[0], started[1])
        end.touch()
        assert other.ended() == 0, other.text()[-4000:]
    finally:
        end.touch()
        for _, submitted in runs:
            submitted.close()
        if other is not None:
            other.close()


def trains(tenant: Tenant, submitted: Submitted) -> Run:
    """A submitted run, once it has cycles."""
    run = Run(tenant, submitted, submitted.until(lambda: application_ids(submitted.text()), "an application")[0])
    submitted.until(lambda: run.updates() > 0, f"cycles of {tenant.name}")
    return run


def beside(tenant: Tenant, folder: Path, end: Path) -> Submitted:
    """Another Spark job of a tenant, in client mode, with small jobs until a file appears."""
    home = spark_home()
    confs = (
        *("spark.executor.memory=512m", "spark.executor.cores=1", "spark.driver.memory=512m", "spark.driver.host=127.0.0.1"),
        *(f"spark.yarn.jars=local:{home.path}/jars/*", f"spark.pyspark.python={tenant.python}"),
        *(f"spark.executorEnv.{key}={value}" for key, value in python_env(tenant.python).items()),
        "spark.python.authenticate.socketTimeout=60s",  # `pace` stops it for ten seconds, of its 15
        *PLAIN,
    )
    program = tenant.home.parent / "other.py"
    shutil.copy(ROOT / "tests" / "hadoop" / "programs" / "other.py", program)
    subprocess.run(
        [*tenant.words(), "kinit", "-k", "-t", str(tenant.home / "keytab"), f"{tenant.name}@{REALM}"],
        env=child_environment(**tenant.env()),
        check=True,
    )
    words = [str(home.submit), "--master", "yarn", "--queue", tenant.name, "--num-executors", "1"]
    words += [word for one in confs for word in ("--conf", one)]
    env = {**tenant.env(), "SPARK_HOME": str(home.path), "PYSPARK_PYTHON": str(tenant.python)}
    return Submitted(*tenant.words(), *words, str(program), str(end), cwd=tenant.home, log=folder / "other.log", env=env)


def on_the_machine(run: Run, stranger: Tenant) -> None:
    """Files of containers, memory, descriptors and environments of their processes."""
    files = [
        str(one) for folder in run.containers() for one in (folder, folder / "container_tokens", folder / "launch_container.sh")
    ]
    records = run.records()
    assert records is not None
    files += [str(records), str(records.parent), str(run.tenant.home / "keytab"), str(run.tenant.home / "node.keytab")]
    files += map(str, run.tenant.data.glob(f"logs/{run.id}/container_*/std*"))
    files += map(str, run.tenant.data.glob(f"local/usercache/*/appcache/{run.id}/container_*/*.keytab*"))
    processes = [int(line.split()[0]) for line in living(run.id)]
    agents = [pid for pid in processes if mapped_by(pid)]
    assert len(processes) >= 6, "the driver, its JVM, two executors and two agents"
    assert len(agents) >= 2
    for pid in processes:
        files += [f"/proc/{pid}/{what}" for what in ("mem", "environ", "maps", "fd")]
    for pid in agents:
        files += [f"/proc/{pid}/fd/{one.name}" for one in Path(f"/proc/{pid}/fd").iterdir() if "memfd:mpca" in os.readlink(one)]
    files = sorted(set(files))
    own, theirs = run.tenant.reads(files), stranger.reads(files)
    # a descriptor may have been closed meanwhile; whoever may not look is refused before that
    can = {path for path, got in own.items() if isinstance(got, int) and (got or path.endswith("/fd"))}
    assert {path for path in own if path not in can and own[path] not in (0, "ENOENT", "ESRCH")} == set()
    assert len(can) > 0.9 * len(files), {path: own[path] for path in own if path not in can}
    kinds = {path.rpartition("/")[2].strip("0123456789") for path in can}
    assert kinds >= {
        "mem",
        "environ",
        "maps",
        "fd",
        "",
        "container_tokens",
        "launch_container.sh",
        "records.jsonl",
        "keytab",
        "stdout",
    }
    refused = {path for path, got in theirs.items() if got in ("EACCES", "EPERM")}
    print(f"{stranger.name} at {run.tenant.name}'s: {len(refused)} of {len(files)} refused; the owner had {len(can)}")
    assert {path: theirs[path] for path in can - refused} == {}


def mapped_by(pid: int) -> bool:
    try:
        return "/memfd:mpca" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def on_hdfs(run: Run, stranger: Tenant) -> None:
    """The run's folder lies in one that all may write into. To name oneself otherwise helps nobody."""
    realm, web = run.tenant.cluster.setup.realm, f"{run.tenant.cluster.setup.hdfs_web('namenode')}/webhdfs/v1"
    assert realm is not None
    backups = json.loads(realm.fetch(f"{web}{run.tenant.shared}/backups?op=LISTSTATUS", run.tenant.name))
    newest = max(one["pathSuffix"] for one in backups["FileStatuses"]["FileStatus"] if one["pathSuffix"].startswith("term-"))
    staging = f"/user/{run.tenant.name}/.sparkStaging/{run.id}"
    asked = (
        *(f"{run.tenant.shared}?op=LISTSTATUS", f"{run.tenant.shared}/backups?op=LISTSTATUS", f"{staging}?op=LISTSTATUS"),
        *(f"{run.tenant.shared}/{one}?op=OPEN" for one in ("config.toml", f"backups/{newest}/manifest.json")),
    )
    for one in asked:
        assert realm.fetch(f"{web}{one}", run.tenant.name, "-L")
        for words in ("", f"&user.name={run.tenant.name}"):
            with pytest.raises(OSError, match=f"Permission denied: user={stranger.name}"):
                realm.fetch(f"{web}{one}{words}", stranger.name, "-L")
        with pytest.raises(OSError, match=f"{stranger.name} is not allowed to impersonate {run.tenant.name}"):
            realm.fetch(f"{web}{one}&doas={run.tenant.name}", stranger.name, "-L")
    with pytest.raises(OSError, match=r"Permission denied by sticky bit|Permission denied: user="):
        realm.fetch(f"{web}{run.tenant.shared}?op=DELETE&recursive=true", stranger.name, "-X", "DELETE")
    url = f"{run.tenant.cluster.hdfs_url}{run.tenant.shared}"
    for tenant, code in ((run.tenant, 0), (stranger, 2)):
        subprocess.run(
            [*tenant.words(), "kinit", "-k", "-t", str(tenant.home / "keytab"), f"{tenant.name}@{REALM}"],
            env=child_environment(**tenant.env()),
            check=True,
        )
        done = subprocess.run(
            [*tenant.words(), str(tenant.python), "-m", "mpca.cli", "backups", "list", url],
            env=child_environment(**tenant.env(), HADOOP_USER_NAME=run.tenant.name),
            cwd=tenant.home,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert (f"Permission denied: user={stranger.name}" in done.stderr) == bool(code), done.stderr


def on_pages(run: Run, stranger: Tenant) -> None:
    """Spark's pages by the ResourceManager's proxy, and which logs a NodeManager has. It shows none of them on this machine, to
    nobody: in a realm that needs Hadoop's native library."""
    cluster = run.tenant.cluster
    realm = cluster.setup.realm
    assert realm is not None
    for page in ("jobs", "environment", "executors"):
        url, html = f"{cluster.resourcemanager_url}/proxy/{run.id}/{page}/", ("-L", "-H", "Accept: text/html")
        assert "spark.acls.enable" in realm.fetch(url, run.tenant.name, *html) or page != "environment"
        with pytest.raises(OSError, match=rf"(?s)error: 403.*User {stranger.name} is not authorized to access this page"):
            realm.fetch(url, stranger.name, *html)
    port = cluster.setup.port(run.tenant.node, "nodemanager_http")
    node = f"http://{WORKERS[run.tenant.number - 1]}:{port}/ws/v1/node/containers"
    (driver,) = (one.name for one in run.containers() if one.name.endswith("_000001"))
    seen = {who: json.loads(realm.fetch(f"{node}/{driver}", who))["container"] for who in (run.tenant.name, stranger.name)}
    assert "stdout" in seen[run.tenant.name]["containerLogFiles"]
    assert "containerLogFiles" not in seen[stranger.name]


@dataclass
class Window:
    """What a run did in a few seconds."""

    updates: int
    seconds: float
    own_s: float  # of its core, that its tenant's processes had
    lost_s: float  # of its core, that went to processes of neither tenant


def pace(first: Run, second: Run) -> None:
    """Each beside the other, and alone: then the other, with all its processes, is stopped.

    A tenant's core is its own, so what the other costs it would show in what it does with that core's time: memory, caches,
    daemons that both use. What else runs on this machine takes time of both cores, as it likes; the rate by the clock is judged
    when that is little.
    """
    seen: dict[tuple[str, bool], list[Window]] = {}

    def window(run: Run, stopped: Run | None) -> Window:
        held = [] if stopped is None else stopped.tenant.processes()
        for one in held:
            one.send_signal(signal.SIGSTOP)
        try:
            time.sleep(SETTLE_S)
            updates, busy, own, began = run.updates(), worked(run.tenant.core), cpu(run.tenant), time.monotonic()
            time.sleep(WINDOW_S)
            own_s, seconds = cpu(run.tenant) - own, time.monotonic() - began
            lost_s = max(0.0, worked(run.tenant.core) - busy - own_s)
            return Window(run.updates() - updates, seconds, own_s, lost_s)
        finally:
            for one in held:
                one.send_signal(signal.SIGCONT)

    for _ in range(ROUNDS):
        for mine, theirs in ((first, second), (second, first)):
            for stopped in (None, theirs):
                seen.setdefault((mine.tenant.name, stopped is not None), []).append(window(mine, stopped))
    for run in (first, second):
        name = run.tenant.name
        beside, alone = (seen[name, stopped] for stopped in (False, True))
        of_core = rate(beside, "own_s") / rate(alone, "own_s")
        by_clock = rate(beside, "seconds") / rate(alone, "seconds")
        lost = max(one.lost_s / one.seconds for one in (*beside, *alone))
        print(f"{name}: rate beside the other over that alone: {of_core:.3f} of its core's time, {by_clock:.3f} by the clock")
        print(f"{name}: up to {lost:.0%} of its core went to neither tenant; beside {beside}; alone {alone}")
        assert of_core >= 0.9
        assert by_clock >= 0.9 or lost > 0.05


def rate(windows: list[Window], of: str) -> float:
    """Updates a second, of that kind of seconds."""
    return float(sum(one.updates for one in windows) / sum(getattr(one, of) for one in windows))


def worked(core: int) -> float:
    """Seconds that a core has worked."""
    times = psutil.cpu_times(percpu=True)[core]
    return float(times.user + times.system + times.nice + times.irq + times.softirq + times.steal)


def cpu(tenant: Tenant) -> float:
    """Seconds that the tenant's processes have worked."""
    total = 0.0
    for one in (*tenant.processes(), psutil.Process(tenant.cluster.pid(tenant.node))):
        with contextlib.suppress(psutil.Error):
            times = one.cpu_times()
            total += float(times.user + times.system)
    return total
