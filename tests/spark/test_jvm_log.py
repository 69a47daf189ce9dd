"""Which line of a JVM's log is the cause. The logs are of real JVMs of Java 17 and Spark 3.5 that did not start, shortened."""

from __future__ import annotations

import pytest

from mpca.spark.jvm.log import first_error

NO_JAVA = """\
/run/spark/bin/spark-class: line 71: /nonexistent/bin/java: No such file or directory
/run/spark/bin/spark-class: line 97: CMD: bad array subscript
"""
NO_ROOM = """\
Picked up JAVA_TOOL_OPTIONS: -Dx=1
Error occurred during initialization of VM
Could not reserve enough space for 943718400KB object heap
"""
SMALL = """\
23:44:40.123 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
23:44:44.467 ERROR SparkContext: Error initializing SparkContext.
org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY] Executor memory 419430400 must be at least 471859200.
\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:235)
23:44:44.500 ERROR Utils: Uncaught exception in thread Thread-4
java.lang.NullPointerException: null
"""
LISTENER = """\
23:54:30.001 ERROR SparkContext: Error initializing SparkContext.
org.apache.spark.SparkException: Exception when registering SparkListener
\tat org.apache.spark.SparkContext.setupAndStartListenerBus(SparkContext.scala:2643)
Caused by: java.lang.ClassNotFoundException: org.nowhere.Listener
\tat java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
\t... 14 more
"""
STOPPING = (
    """\
23:54:29.990 ERROR Inbox: Ignoring error
org.apache.spark.SparkException: Could not find AppClient.
\tat org.apache.spark.rpc.netty.Dispatcher.postMessage(Dispatcher.scala:181)
"""
    + LISTENER
)
NO_MASTER = """\
23:56:40.000 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:9
org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:56)
23:57:40.000 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.
23:57:40.100 WARN StandaloneSchedulerBackend: Application ID is not initialized yet.
23:57:40.300 ERROR SparkContext: Error initializing SparkContext.
java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
"""
ON_YARN = """\
26/11/22 23:44:40 INFO SignalUtils: Registering signal handler for TERM
26/11/22 23:44:41 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Exception in thread "main" java.lang.reflect.UndeclaredThrowableException
\tat org.apache.hadoop.security.UserGroupInformation.doAs(UserGroupInformation.java:1894)
Caused by: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: java.io.IOException: Failed to connect to node7/10.0.0.7:40001
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (NO_JAVA, "/run/spark/bin/spark-class: line 71: /nonexistent/bin/java: No such file or directory"),
        (
            NO_ROOM,
            "Error occurred during initialization of VM: Could not reserve enough space for 943718400KB object heap",
        ),
        (
            SMALL,
            "org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY] Executor memory 419430400 must be at "
            "least 471859200.",
        ),
        (
            LISTENER,
            "org.apache.spark.SparkException: Exception when registering SparkListener; caused by "
            "java.lang.ClassNotFoundException: org.nowhere.Listener",
        ),
        (
            STOPPING,
            "org.apache.spark.SparkException: Exception when registering SparkListener; caused by "
            "java.lang.ClassNotFoundException: org.nowhere.Listener",
        ),
        (
            NO_MASTER,
            "StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.",
        ),
        (
            ON_YARN,
            "java.lang.reflect.UndeclaredThrowableException; caused by java.io.IOException: Failed to connect to "
            "node7/10.0.0.7:40001",
        ),
        ("23:44:40.123 WARN Utils: no loopback\njava.io.IOException: of the warning\n\tat a.b(c)\n", ""),
        ("23:44:40.123 ERROR Utils: the last line", "Utils: the last line"),
        ("", ""),
    ],
)
def test_the_first_error_of_a_log_is_found(log: str, line: str) -> None:
    assert first_error(log) == line
