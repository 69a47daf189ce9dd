"""Every time-out of the engine, in seconds, in the order in which they run out. ARCHITECTURE.md explains the order.

They are in one file because they depend on each other: a process must give up a wait before another that waits for it does.
`tests/test_timeouts.py` checks the inequalities, and that no other module has a time-out of its own. Those of the executor's
JVM are in `org.mpca.agent.TimeOuts`. Users' own settings are in the section ``[cluster]`` of the configuration:
`cycle_deadline`, `start_timeout` and `finish_timeout`. Not here: intervals of polling and display, which are no limits.
"""

from __future__ import annotations

# ---- an order and its answers; longest: cluster.cycle_deadline, 30 s ----

#: A download that is younger than this is never late. Then twice the mean time of the others counts.
LATE_ALONE_S = 1.0
#: After a failed job the driver waits so long for news of a lost executor. Then it takes the executor that failed for the
#: cause.
LOSS_NEWS_S = 1.0
#: A job is cancelled so long after its deadline. Executors end their waits at the deadline itself.
CANCEL_AFTER_S = 2.0
#: Interval at which the driver asks executors whether agents live that were left out, or whose holding job ended.
ASK_AGAIN_S = 5.0
#: An agent that takes no step for so long prints its stacks, and the driver reports it.
SILENT_S = 60.0

# ---- agents' parent ----

#: A preloaded parent without agents ends after so long: a run that follows soon in the same session finds it warm.
PARENT_IDLE_S = 60.0

# ---- parts that fail again and again are given up for some time ----

#: An executor that damaged bytes twice would do so again: its agents stay left out for so long.
BARRED_S = 600.0
#: Deaths of agents on one executor are counted over so long, and it is left empty for so long after the third.
QUARANTINE_S = 600.0
#: Deaths of the evaluator's process are counted over so long; the third ends evaluating.
EVALUATOR_DEATHS_S = 600.0
#: The evaluator is started again after so long: what ended it, such as too many processes, may be over then.
EVALUATOR_AGAIN_S = 1.0

# ---- the end of a run: an interrupted one ends within about ten seconds ----

#: A stop waits so long for the order that is under way.
STOP_ORDER_S = 2.0
#: After Stop, a train function that still makes updates has so long; so has every function of a run that was interrupted or
#: failed. All others have cluster.finish_timeout.
STOP_GRACE_S = 4.0
#: A stop order that failed goes out again after so long: news of a lost executor may be on its way.
STOP_AGAIN_S = 1.0
#: Threads of a train function that has returned are named by its agent when they go on for so long.
THREADS_END_S = 1.0
#: The evaluation of the last joint model may take so long when the run was interrupted or failed; else cluster.finish_timeout.
LAST_EVALUATION_S = 3.0
#: The backup of the last joint model may take so long when the run was interrupted; else cluster.finish_timeout.
LAST_BACKUP_S = 5.0
#: Executors may take so long to write agents' own states; then the backup is written without them.
AGENTS_SAVED_S = 300.0
#: ... and so long at the end of a run.
AGENTS_LAST_S = 20.0
#: Callbacks of the user have so long after the end of the run, for what they have not heard of yet and for `on_end`.
CALLBACKS_END_S = 5.0
#: A tracker that is away has so long after the end of the run; others have track.finish_timeout.
TRACKERS_END_S = 5.0
#: A tracker that does not answer a question for so long is away.
TRACKER_SILENT_S = 30.0
#: The evaluator's process may take so long to end by itself.
EVALUATOR_END_S = 2.0
#: A process that reads or writes for us (a decoder, Hadoop's client) may take so long to end by itself.
CHILD_END_S = 5.0
#: A JVM of a local session may take so long to end, and so may a page that is read from it.
SESSION_END_S = 10.0
#: JVMs that a killed driver left end by themselves, in three seconds; on a busy machine a resume was refused after ten.
LEFT_JVM_END_S = 30.0
#: An executor's JVM may take so long before it is killed: its agents have ended by then.
EXECUTORS_END_S = 1.0
#: `mpca tune` that was asked to end waits so long for the run that it started.
RUN_END_S = 40.0
#: `mpca submit` waits so long for the last lines of a driver that has ended.
LAST_LINES_S = 40.0

# ---- a run folder on HDFS, and who owns it ----

#: Interval of writing records, and the heartbeat by which an owner shows that it lives. With the time of writing it is at most
#: five seconds.
BEAT_S = 3.0
#: The owner of a folder counts as dead when its heartbeat has not changed for so long.
OWNER_DEAD_S = 15.0
#: A run ends in order so long before its tokens for HDFS do, if there will be no new ones: its last backup needs them.
BEFORE_TOKENS_END_S = 300.0
#: The writer of records tries a full or broken disk again after so long.
DISK_AGAIN_S = 1.0

# ---- HDFS, the network, processes that are about to go ----

#: Connecting to WebHDFS may take so long.
WEBHDFS_CONNECT_S = 10.0
#: The time between two pieces of an answer of WebHDFS.
WEBHDFS_READ_S = 60.0
#: A command that reads from HDFS while a person waits tries for so long.
COMMAND_PATIENCE_S = 5.0
#: `mpca doctor` asks a page of YARN or HDFS for so long.
PAGE_S = 5.0
#: A failed read of a stream is tried again after each of these waits; then the run ends. A NameNode needs a minute to restart.
STREAM_AGAIN_S = (0.2, 1.0, 5.0, 15.0, 30.0, 30.0)
#: An agent waits so long for its executor to open the pipes of a file.
PIPES_OPEN_S = 60.0
#: An agent waits so long for the GPU of one that is being replaced.
GPU_FREE_S = 10.0
#: Processor time of decoding one image. The slowest image that passes the checks of headers took 4 s on a busy core.
DECODE_CPU_S = 20
