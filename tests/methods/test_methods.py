"""The common battery of every method in the table, and what each one is."""

from __future__ import annotations

import inspect
import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.algorithm import Outer
from mpca.driver.run_shape import RunShape
from mpca.errors import ConfigError
from mpca.methods import (
    METHODS,
    MPCA,
    AgentSide,
    DiLoCo,
    DL4JAveraging,
    How,
    Method,
    NesterovMPCA,
    PaperMPCA,
    Sends,
    Single,
    Sync,
    SyncEASGD,
    When,
    from_dict,
)

#: Methods whose first exchange moves the joint model by another share than the whole.
RATES = ("diloco", "mpca-nesterov", "sync-easgd")


@pytest.fixture(params=sorted(METHODS))
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]()


@pytest.fixture(params=sorted(name for name, cls in METHODS.items() if not (cls().asks or cls.simulated)))
def coordinated(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]()


@pytest.fixture(params=sorted(name for name, cls in METHODS.items() if cls().asks))
def server(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]()


def test_travels_as_a_plain_map(method: Method) -> None:
    values = method.to_dict()
    assert from_dict(json.loads(json.dumps(values))) == method
    assert values["name"] == method.name
    assert from_dict({key: str(value) for key, value in values.items()}) == method


def test_agents_hear_all_but_alpha_which_comes_with_every_joint_state(method: Method) -> None:
    told, all_of_it = method.for_agents(), method.to_dict()
    assert told.keys() == all_of_it.keys() - {"alpha"}
    assert type(from_dict(json.loads(json.dumps(told)))) is type(method)
    assert all_of_it | told == all_of_it


def test_every_number_says_what_it_means(method: Method) -> None:
    for one in fields(method):
        owner = next(cls for cls in type(method).__mro__ if one.name in vars(cls).get("__annotations__", {}))
        source = inspect.getsource(owner)
        after = source.split(f"    {one.name}: ")[1].split("\n", 2)[1]
        assert after.strip().startswith('"""'), one.name


def test_is_frozen(method: Method) -> None:
    with pytest.raises(FrozenInstanceError):
        method.name = "other"  # type: ignore[misc]


def test_answers_are_among_those_that_agents_know(method: Method) -> None:
    assert method.agent_side.how in How
    assert method.agent_side.when in When
    assert 1 <= method.phases <= min(method.shards, 3)
    assert method.agent_side.hold_after >= 0
    assert method.agents(4) in (1, 4)


def test_first_exchange_takes_the_mean_whole_or_by_the_methods_rate(coordinated: Method) -> None:
    method = coordinated
    x0, mean = np.float32([1, 2, 3]), np.float32([4, 4, 4])
    state = method.start(x0, parameters=2)
    assert state.k == 0
    np.testing.assert_array_equal(method.outgoing(state), x0)
    state = method.merge(state, mean.copy())
    assert state.k == 1
    outer = method.outer
    rate = method.beta_at(0) * (1 + outer.momentum if outer is not None and outer.nesterov else 1)
    if rate == 1:
        np.testing.assert_array_equal(state.x, mean)
    else:
        assert method.name in RATES
        np.testing.assert_allclose(state.x[:2], x0[:2] + rate * (mean - x0)[:2], rtol=1e-6)
    np.testing.assert_array_equal(x0, [1, 2, 3])


def test_a_method_has_a_mean_or_a_server(method: Method) -> None:
    state, vector = method.start(np.float32([1, 2]), 2), np.float32([3, 4])
    refused = (method.merge, (state, vector)) if method.asks or method.simulated else (method.serve, (state, vector, 0, 4))
    with pytest.raises(NotImplementedError, match=f"agents of method {method.name}"):
        refused[0](*refused[1])


def test_serves_float32_and_leaves_states_alone(server: Method) -> None:
    rng = np.random.default_rng(3)
    state = server.start(rng.standard_normal(6).astype(np.float32), parameters=4)
    for k in range(30):
        kept = (state, state.x.tobytes(), state.v.tobytes())
        served = server.serve(state, rng.standard_normal(6).astype(np.float32), k % 5, 3)
        assert (state, state.x.tobytes(), state.v.tobytes()) == kept
        assert served.state.k == k + 1
        assert served.state.x.dtype == served.state.v.dtype == served.answer.dtype == np.float32
        assert 0 < served.share <= 1
        state = served.state


def test_buffers_move_a_kth_of_the_way_and_are_never_summed(server: Method) -> None:
    state = server.start(np.float32([1, 2, 10]), 2)
    assert server.serve(state, np.float32([0, 0, 20]), 0, 5).state.x[2] == 12


def test_merges_and_sends_float32_and_leaves_states_alone(coordinated: Method) -> None:
    method = coordinated
    rng = np.random.default_rng(3)
    state = method.start(rng.standard_normal(6).astype(np.float32), parameters=4)
    for k in range(30):
        kept = (state, state.x.tobytes(), state.v.tobytes())
        after = method.merge(state, rng.standard_normal(6).astype(np.float32))
        sent = method.outgoing(after)
        assert (state, state.x.tobytes(), state.v.tobytes()) == kept
        assert after.k == k + 1
        assert after.x.dtype == sent.dtype == np.float32
        np.testing.assert_array_equal(sent[4:], after.x[4:])
        state = after


def test_nobody_is_pulled_before_a_joint_state_is_installed(method: Method) -> None:
    assert all(
        0 <= method.alpha_for(tau, 4) <= method.agent_side.penalty(method.alpha_for(tau, 4), 0) <= 1 for tau in range(100)
    )


# ---- mpca ----------------------------------------------------------------------------------------------------------


def test_mpca_defaults_are_the_papers_but_for_alpha() -> None:
    method = MPCA()
    assert (method.alpha, method.beta, method.gamma, method.delta) == ("auto", 0.9, 0.7, 0.8)
    assert (method.beta_ramp, method.gamma_ramp, method.shards, method.phases) == (20, 20, 3, 3)
    assert (method.agent_side.how, method.agent_side.when) == (How.PULL, When.ON_ARRIVAL)


@given(st.integers(1, 9))
def test_phases_are_as_many_as_possible_unless_said(shards: int) -> None:
    assert MPCA(shards=shards).phases == min(shards, 3)
    assert MPCA(shards=shards, phases=1).phases == 1


def test_outgoing_is_projected_with_the_gamma_of_the_exchange_that_made_it() -> None:
    method = MPCA(gamma=0.5, gamma_ramp=2, beta=1.0, delta=0.0)
    state = method.start(np.float32([0]), 1)
    sent = []
    for value in (1, 2, 3, 4):
        state = method.merge(state, np.float32([value]))
        sent.append(float(method.outgoing(state)[0]))
    # v is 1 each time; gamma 0, then a quarter, then a half
    assert sent == [1.0, 2.25, 3.5, 4.5]
    assert [method.gamma_at(k) for k in range(4)] == [0.0, 0.25, 0.5, 0.5]


def test_correction_installs_first_and_pulls_nobody() -> None:
    method = MPCA(correction=True)
    assert (method.agent_side.how, method.agent_side.when) == (How.CORRECT, When.ON_ARRIVAL)
    assert method.alpha_for(20.0, 4) == 0.0
    assert MPCA(correction=True, install="exchange").agent_side.when is When.BEFORE_SNAPSHOT
    assert MPCA(install="exchange").agent_side.when is When.AFTER_SNAPSHOT


def test_eq_6_tilts_by_a_weight_that_may_be_above_1() -> None:
    method = MPCA(regulariser=True, alpha=3.0)
    assert (method.agent_side.how, method.alpha_for(20.0, 4)) == (How.TILT, 3.0)
    assert from_dict(method.for_agents()) == method


def test_replacement_takes_arrivals_as_its_own_and_pulls_nobody() -> None:
    method = MPCA(replace=True)
    assert (method.agent_side.how, method.agent_side.when) == (How.REPLACE, When.ON_ARRIVAL)
    assert not method.agent_side.hold_after
    assert method.alpha_for(20.0, 4) == 0.0


def test_with_an_outer_optimiser_the_ledger_has_its_rate_and_no_projection() -> None:
    method = MPCA(outer_lr=0.7, outer_momentum=0.6)
    assert method.outer == Outer(0.7, 0.6)
    assert [method.numbers(version) for version in (0, 1, 30)] == [(0.7, 0.0)] * 3
    assert method.alpha_for(20.0, 4) == 0.025, "the pull stays"
    assert MPCA().outer is None


@pytest.mark.parametrize(("tau", "alpha"), [(1, 0.5), (15, 1 / 30), (20, 0.025), (90, 1 / 180), (0.0, 0.5)])
def test_alpha_auto_takes_half_of_the_distance_between_two_refreshes(tau: float, alpha: float) -> None:
    assert MPCA().alpha_for(tau, 4) == pytest.approx(alpha)
    assert MPCA(alpha=0.005).alpha_for(tau, 4) == 0.005


def test_the_early_schedule_is_by_updates_and_ends_at_what_the_driver_sent() -> None:
    method = MPCA().agent_side
    assert [round(method.penalty(0.1, u), 5) for u in (0, 1, 2, 4, 5, 90)] == [0.5, 0.35, 0.245, 0.12005, 0.1, 0.1]
    assert method.penalty(0.1, None) == 0.1, "it began at a later version"


def test_mpca_paper_has_the_papers_alpha_and_decays_its_beginning_by_exchanges() -> None:
    method = PaperMPCA()
    assert [method.alpha_for(tau, 4) for tau in (1.0, 15.0, 90.0)] == [0.05] * 3
    assert method.agent_side.decay_by_version
    differs = {key for key, value in MPCA().to_dict().items() if method.to_dict()[key] != value}
    assert differs == {"name", "alpha", "alpha_unit"}
    assert from_dict({"name": "mpca-paper", "alpha": "auto"}).alpha_for(20.0, 4) == 0.025


def test_the_default_is_mpca_with_another_install_outer_nesterov_and_shards_by_measurement() -> None:
    method = NesterovMPCA()
    assert method == NesterovMPCA(**{key: value for key, value in method.to_dict().items() if key != "name"})
    differs = {key for key, value in MPCA().to_dict().items() if method.to_dict()[key] != value}
    assert differs == {"name", "correction", "outer_lr", "outer_momentum", "shards"}
    assert NesterovMPCA(correction=False, alpha=0.1).agent_side.how == How.PULL
    assert NesterovMPCA(outer_lr=0.0, outer_momentum=0.0, gamma=0.5).outer is None


@pytest.mark.parametrize(("given", "taken"), [("auto", "auto"), (" auto ", "auto"), ("0.05", 0.05), (0.05, 0.05), (1, 1.0)])
def test_alpha_is_a_number_or_auto(given: object, taken: object) -> None:
    assert from_dict({"alpha": given}).alpha == taken  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 1.5}, r"method.alpha = 1.5: must lie in \[0, 1\]"),
        ({"alpha": -0.1}, r"method.alpha = -0.1"),
        ({"alpha": float("nan")}, r"method.alpha = nan"),
        ({"beta": 2.0}, r"method.beta = 2.0"),
        ({"delta": 1.0}, r"method.delta = 1.0"),
        ({"alpha_start": 1.1}, r"method.alpha_start = 1.1"),
        ({"gamma": -1.0}, r"method.gamma = -1.0"),
        ({"gamma": 1.0, "correction": True}, r"method.gamma = 1.0: must be below 1 with method.correction.*set"),
        ({"gamma": 1.0, "replace": True}, r"method.gamma = 1.0: must be below 1 with method.replace.*set"),
        ({"correction": True, "replace": True}, r"method.replace = True: cannot go with method.correction"),
        (
            {"regulariser": True, "alpha": "auto"},
            r"method.alpha = 'auto': must be a number, 0 or more, with method.regulariser",
        ),
        ({"regulariser": True, "alpha": -1.0}, r"method.alpha = -1.0: must be a number, 0 or more"),
        ({"regulariser": True, "alpha": 1.0, "replace": True}, r"method.replace = True: cannot go with method.regulariser"),
        ({"outer_lr": -0.1}, r"method.outer_lr = -0.1: must be above 0, and at most 2"),
        ({"outer_lr": 2.5}, r"method.outer_lr = 2.5"),
        ({"outer_lr": 0.0, "outer_momentum": 0.6}, r"method.outer_lr = 0.0: must be above 0"),
        ({"outer_lr": 0.7, "outer_momentum": 1.0}, r"method.outer_momentum = 1.0: must lie in \[0, 1\)"),
        (
            {"name": "mpca-nesterov", "alpha": 0.1},
            r"method.alpha = 0.1: is not used, as method.correction = True.*set method.name",
        ),
        (
            {"name": "mpca-nesterov", "gamma": 0.2},
            r"method.gamma = 0.2: is not used, as method.outer_lr = 0.7.*set method.name",
        ),
        ({"gamma_ramp": -1}, r"method.gamma_ramp = -1"),
        ({"shards": 0}, r"method.shards = 0"),
        ({"shards": 2, "phases": 3}, r"method.phases = 3: must be at most 2 with method.shards = 2.*raise"),
        ({"shards": 9, "phases": 4}, r"method.phases = 4: must be at most 3"),
        ({"install": "later"}, r"method.install = 'later': must be one of exchange, arrival"),
        ({"alpha_unit": "cycle"}, r"method.alpha_unit = 'cycle': must be one of update, exchange"),
        ({"alfa": 0.1}, r"unknown key method.alfa: did you mean 'alpha'"),
        ({"alpha": "much"}, r"""method.alpha = 'much': must be a finite number, or "auto\""""),
        ({"alpha": "Auto"}, r"""method.alpha = 'Auto': must be a finite number, or "auto\""""),
        ({"alpha": True}, r"""method.alpha = True: must be a finite number, or "auto\""""),
        ({"shards": 2.5}, r"method.shards = 2.5: must be a whole number"),
        ({"correction": "perhaps"}, r"method.correction = 'perhaps': must be true or false"),
        ({"name": "mcpa"}, r"method.name = 'mcpa': no such method; did you mean 'mpca'"),
        ({"name": "sync", "tau": 0}, r"method.tau = 0"),
        ({"name": "overlap-local-sgd", "tau": 0}, r"method.tau = 0: must be 1 or more"),
        ({"name": "overlap-local-sgd", "alpha": 1.1}, r"method.alpha = 1.1: must lie in \[0, 1\]"),
        ({"name": "overlap-local-sgd", "momentum": 1.0}, r"method.momentum = 1.0: must lie in \[0, 1\)"),
        ({"name": "diloco", "outer_lr": 0.0}, r"method.outer_lr = 0.0: must be above 0, and at most 2"),
        ({"name": "diloco", "outer_momentum": -0.1}, r"method.outer_momentum = -0.1: must lie in \[0, 1\)"),
        ({"name": "diloco", "fragments": 0}, r"method.fragments = 0: must be 1 or more"),
        ({"name": "diloco", "fragments": 2}, r"method.fragments = 2: must be 1 without overlap; set"),
        ({"name": "diloco", "period": 0}, r"method.period = 0: must be at least method.fragments = 1"),
        ({"name": "diloco", "overlap": True, "mixing": 1.0}, r"method.mixing = 1.0: must lie in \[0, 1\)"),
        ({"name": "diloco", "overlap": True, "phases": 2}, r"method.phases = 2: must lie between 1 and 1"),
        ({"name": "dl4j-averaging", "averaging_frequency": 0}, r"method.averaging_frequency = 0: must be 1 or more"),
        ({"name": "dl4j-averaging", "updater": "mean"}, r"method.updater = 'mean': must be one of keep, reset, average"),
        ({"name": "sync", "seconds": -1.0}, r"method.seconds = -1.0: must be 0 or more"),
        ({"name": "single", "ema": 1.0}, r"method.ema = 1.0: must lie in \[0, 1\)"),
        ({"name": "single", "every": 0}, r"method.every = 0: must be 1 or more"),
        ({"name": "sync-easgd", "tau": 0}, r"method.tau = 0: must be 1 or more"),
        ({"name": "sync-easgd", "beta": 0.0}, r"method.beta = 0.0: must lie in \(0, 1\]"),
        ({"name": "sync-ps", "momentum": 1.0}, r"method.momentum = 1.0: must lie in \[0, 1\)"),
        ({"name": "sync", "alpha": 0.1}, r"unknown key method.alpha"),
        ({"name": "easgd", "tau": 0}, r"method.tau = 0: must be 1 or more"),
        ({"name": "easgd", "beta": 1.5}, r"method.beta = 1.5: must lie in \(0, 1\]"),
        ({"name": "easgd", "loss_cut": -1.0}, r"method.loss_cut = -1.0: must be 0 or more"),
        ({"name": "async-ps", "n_push": 0}, r"method.n_push = 0: must be 1 or more"),
        ({"name": "async-ps", "scale": 0.0}, r"method.scale = 0.0: must lie in \(0, 1\]"),
        ({"name": "async-ps", "momentum": 1.0}, r"method.momentum = 1.0: must lie in \[0, 1\)"),
        ({"name": "softsync", "n": 0}, r"method.n = 0: must be 1 or more"),
        ({"name": "gradient-sharing", "threshold": 0.0}, r"method.threshold = 0.0: must be above 0"),
        ({"name": "gradient-sharing", "least": 0.5, "most": 0.1}, r"method.least = 0.5: must be at most method.most = 0.1"),
        ({"name": "gradient-sharing", "most": 2.0}, r"method.most = 2.0: must lie in \[0, 1\]"),
        ({"name": "gradient-sharing", "decay": 1.0}, r"method.decay = 1.0: must lie in \(0, 1\)"),
        ({"name": "gradient-sharing", "clip": -1.0}, r"method.clip = -1.0: must be 0 or more"),
    ],
)
def test_refused_values_name_key_value_and_what_is_allowed(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_dict(values)
    assert caught.value.key is not None
    assert caught.value.key.removeprefix("method.") in values


def test_gamma_above_one_is_allowed_without_correction() -> None:
    assert MPCA(gamma=1.5).gamma == 1.5


def test_a_method_made_in_python_is_checked_too() -> None:
    for wrong in (3, "much", None, float("nan")):
        with pytest.raises(ConfigError, match=r"method.alpha = .*: must lie in \[0, 1\], or be"):
            MPCA(alpha=wrong)


# ---- single and sync -----------------------------------------------------------------------------------------------


def test_single_reads_one_agent_and_never_broadcasts() -> None:
    assert Single().agents(8) == 1
    assert not Single().exchanges
    assert MPCA().exchanges


def test_single_with_an_average_is_read_after_a_number_of_updates() -> None:
    method = Single(ema=0.5, every=2)
    assert (method.agent_side.snapshot_after, Single().agent_side.snapshot_after) == (2, 0)
    state = method.start(np.float32([9.0]), 1)
    seen = []
    for value in (4.0, 8.0, 8.0):
        state = method.merge(state, np.float32([value]))
        seen.append(float(state.x[0]))
    assert seen == [4.0, 7.0, 7.75], "the first reading, then three quarters of the way to each"


def test_sync_easgd_pulls_by_its_share_of_those_who_take_part() -> None:
    assert [SyncEASGD().alpha_for(10.0, agents) for agents in (1, 3, 9)] == pytest.approx([0.9, 0.3, 0.1])


def test_sync_replaces_by_the_mean_and_holds() -> None:
    method = Sync(tau=7)
    assert method.agent_side == AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=7)
    state = method.start(np.float32([0, 0]), 1)
    for value in (3, 5):
        state = method.merge(state, np.float32([value, value]))
        np.testing.assert_array_equal(method.outgoing(state), [value, value])


@pytest.mark.parametrize(
    ("values", "waits"),
    [
        ({"name": "mpca"}, False),
        ({"name": "mpca", "install": "exchange"}, True),
        ({"name": "mpca", "correction": True}, True),
        ({"name": "diloco", "overlap": True}, False),
        ({"name": "diloco", "overlap": True, "eager": True}, True),
        ({"name": "sync"}, False),
        ({"name": "overlap-local-sgd"}, True),
        ({"name": "sync-easgd"}, True),
    ],
    ids=str,
)
def test_who_waits_for_a_shard_before_it_is_frozen(values: dict[str, object], waits: bool) -> None:
    shape = RunShape.of(from_dict(values), run="r", term=1, min_agents=1, deadline_s=1.0, start_timeout_s=1.0)
    assert shape.waits_for_shard is waits


def test_numbers_of_a_version_are_those_of_the_exchange_that_made_it() -> None:
    """Exchange k, counted from 0, makes version k + 1: beta 0.9^(k/20), gamma 0.7 k/20."""
    method = MPCA()
    assert [round(method.numbers(version)[0], 6) for version in (0, 1, 2, 21, 30)] == [1.0, 1.0, 0.994746, 0.9, 0.9]
    assert [round(method.numbers(version)[1], 6) for version in (0, 1, 2, 21, 30)] == [0.0, 0.0, 0.035, 0.7, 0.7]


# ---- diloco ---------------------------------------------------------------------------------------------------------


def test_diloco_waits_or_streams() -> None:
    assert DiLoCo(period=7).agent_side == AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=7)
    streams = DiLoCo(period=7, fragments=3, overlap=True, mixing=0.25)
    assert streams.agent_side == AgentSide(How.MIX, When.ON_ARRIVAL, snapshot_after=2)
    assert (streams.shards, streams.phases, streams.alpha_for(7.0, 4)) == (3, 1, 0.75)
    replaced = DiLoCo(period=7, overlap=True, mixing=0.0)
    assert (replaced.agent_side.how, replaced.alpha_for(7.0, 4)) == (How.REPLACE, 0.0)


def test_eager_agents_have_the_drivers_outer_optimiser_too_and_a_share_of_those_who_took_part() -> None:
    method = DiLoCo(period=7, fragments=2, overlap=True, eager=True, outer_lr=0.4)
    assert method.agent_side == AgentSide(How.EAGER, When.ON_ARRIVAL, snapshot_after=3, outer=method.outer)
    assert [method.alpha_for(7.0, agents) for agents in (1, 4)] == [1.0, 0.25]


# ---- dl4j-averaging -------------------------------------------------------------------------------------------------


def test_dl4j_averaging_is_sync_with_a_choice_for_the_optimisers_state() -> None:
    assert DL4JAveraging(7).agent_side == Sync(7).agent_side
    assert DL4JAveraging(7, "reset").agent_side == AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=7, resets_optimizer=True)
    averaged = AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=7, exchanges_optimizer=True)
    assert DL4JAveraging(7, "average").agent_side == averaged


@pytest.mark.parametrize("values", [{"how": How.PULL}, {"resets_optimizer": True}, {"sends": Sends.CHANGE, "asks_after": 1}])
def test_an_optimisers_state_is_exchanged_only_where_a_joint_state_replaces_the_agents(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^an optimiser's state is exchanged only where"):
        AgentSide(**{"how": How.REPLACE, "when": When.ON_ARRIVAL, "exchanges_optimizer": True, **values})


@pytest.mark.parametrize(
    "method", [MPCA(shards="auto"), PaperMPCA(shards="auto"), from_dict({"name": "mpca", "shards": "auto"})]
)
def test_an_auto_number_of_shards_is_a_three_until_the_driver_has_decided(method: MPCA) -> None:
    assert (method.shards, method.phases, method.auto_shards) == (3, 3, True)
    assert method.to_dict()["shards"] == "auto"
    assert from_dict(method.to_dict()).auto_shards
    assert replace(method, delta=0.5).auto_shards, "another number of the method leaves it open"
    decided = method.cut(7)
    assert (type(decided), decided.shards, decided.phases, decided.auto_shards) == (type(method), 7, 3, False)
    assert decided.to_dict() == method.to_dict() | {"shards": 7}


def test_a_number_of_shards_is_not_decided_anew() -> None:
    assert not MPCA(shards=3).auto_shards
    assert not Sync().auto_shards
    with pytest.raises(NotImplementedError, match="method sync has its own number of shards"):
        Sync().cut(5)


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_an_auto_number_of_shards_leaves_the_phases_as_they_are(phases: int) -> None:
    assert MPCA(shards="auto", phases=phases).cut(24).phases == phases


@pytest.mark.parametrize("shards", ["many", "AUTO", 2.5, True])
def test_what_is_no_number_of_shards_is_refused(shards: object) -> None:
    with pytest.raises(ConfigError, match=r"method.shards = .*must be a whole number"):
        from_dict({"name": "mpca", "shards": shards})
