"""Leader election: epochs, heartbeats and barriers as a pure state machine."""

from __future__ import annotations

from admittance.lease import LeaseState, Takeover, service_domain

D = "cohort-team"


def taken(lease: LeaseState, epoch: int) -> None:
    assert [take.domain for take in lease.domains_to_take([D])] == [D]
    assert lease.took(D, epoch)


def test_a_vacant_domain_is_taken_once() -> None:
    me = LeaseState("me")
    assert me.domains_to_take([D]) == [Takeover(D, 0)]
    assert me.domains_to_take([D]) == []


def test_a_leader_whose_epoch_left_the_log_takes_its_domain_again() -> None:
    # Of each two instances one is the next leader of the domain, and the other one leads it.
    for leader, standby in (("a", "b"), ("b", "a")):
        me, other = LeaseState(leader), LeaseState(standby)
        me.alive(standby)
        other.alive(leader)
        for lease in (me, other):
            lease.epoch_seen(D, 7, leader)
        me.forgotten(D, 7)
        assert me.domains_to_take([D]) == [Takeover(D, 0)]
        assert other.domains_to_take([D]) == []


def test_nothing_is_decided_before_the_barrier_has_come_back() -> None:
    me = LeaseState("me")
    taken(me, 7)
    assert me.held(D) == 7
    assert me.fence(D) is None
    assert me.echoed(D, 7)
    assert me.fence(D) == 7


def test_the_echo_of_an_earlier_barrier_is_not_ours() -> None:
    me = LeaseState("me")
    taken(me, 7)
    assert not me.echoed(D, 6)
    assert me.fence(D) is None


def test_an_echo_that_overtook_the_acknowledgement_counts() -> None:
    me = LeaseState("me")
    me.domains_to_take([D])
    me.echoed(D, 7)
    assert me.took(D, 7)
    assert me.fence(D) == 7


def test_a_newer_epoch_ends_the_tenure() -> None:
    me = LeaseState("me")
    taken(me, 7)
    me.echoed(D, 7)
    assert me.epoch_seen(D, 9, "you")
    assert me.fence(D) is None
    assert me.leads() == []


def test_a_domain_is_led_while_the_owner_of_its_newest_epoch_beats() -> None:
    me = LeaseState("me")
    assert not me.led(D)
    me.epoch_seen(D, 7, "you")
    assert not me.led(D)
    me.alive("you")
    assert me.led(D)
    me.gone("you")
    assert not me.led(D)
    taken(me, 9)
    assert me.led(D)
    me.lost(D)
    assert not me.led(D)


def test_the_first_epoch_of_a_log_counts_as_any_other() -> None:
    me = LeaseState("me")
    taken(me, 1)
    assert (me.known(D), me.held(D), me.fence(D)) == (1, 1, None)
    you = LeaseState("you")
    you.epoch_seen(D, 1, "me")
    assert (you.known(D), you.owner(D)) == (1, "me")


def test_an_epoch_that_is_read_before_its_acknowledgement_is_held() -> None:
    me = LeaseState("me")
    me.domains_to_take([D])
    assert not me.epoch_seen(D, 7, "me")
    assert me.took(D, 7)
    assert me.held(D) == 7


def test_an_older_epoch_changes_nothing() -> None:
    me = LeaseState("me")
    taken(me, 7)
    assert not me.epoch_seen(D, 5, "you")
    assert me.held(D) == 7


def test_a_domain_stays_with_its_owner_while_that_beats() -> None:
    me = LeaseState("me")
    me.epoch_seen(D, 3, "you")
    me.alive("you")
    assert me.domains_to_take([D]) == []
    me.gone("you")
    assert me.domains_to_take([D]) == [Takeover(D, 3)]


def test_a_domain_of_an_earlier_run_is_taken_over_at_once() -> None:
    me = LeaseState("me")
    me.epoch_seen(D, 3, "me")
    assert me.domains_to_take([D]) == [Takeover(D, 3)]


def test_exactly_one_of_several_leaders_takes_each_vacant_domain() -> None:
    names = [f"i{n}" for n in range(4)]
    tenures = [LeaseState(name) for name in names]
    for lease in tenures:
        for name in names:
            lease.alive(name)
    domains = [f"queue-{n}" for n in range(100)]
    takers = [take.domain for lease in tenures for take in lease.domains_to_take(domains)]
    assert sorted(takers) == sorted(domains)
    # Instances of another version compute the same leaders.
    assert takers[:3] == ["queue-4", "queue-5", "queue-12"]


def test_what_was_lost_may_be_taken_again_from_the_newest_epoch() -> None:
    me = LeaseState("me")
    taken(me, 7)
    me.lost(D)
    assert me.domains_to_take([D]) == [Takeover(D, 7)]


def test_a_takeover_that_failed_is_tried_again() -> None:
    me = LeaseState("me")
    me.domains_to_take([D])
    me.not_taken(D)
    assert me.domains_to_take([D]) == [Takeover(D, 0)]


def test_a_domain_without_its_epoch_on_the_log_is_taken_as_a_new_domain() -> None:
    me = LeaseState("me")
    taken(me, 7)
    me.echoed(D, 7)
    assert me.forgotten(D, 7)
    assert me.fence(D) is None
    assert me.domains_to_take([D]) == [Takeover(D, 0)]


def test_an_epoch_that_arrives_during_the_log_query_is_kept() -> None:
    me = LeaseState("me")
    taken(me, 7)
    assert not me.forgotten(D, 0)
    assert me.held(D) == 7


def test_a_domain_that_is_gone_is_given_up_and_taken_again_as_the_log_says() -> None:
    me = LeaseState("me")
    taken(me, 7)
    me.echoed(D, 7)
    me.drop(D)
    assert (me.leads(), me.fence(D), me.owner(D), me.known(D)) == ([], None, "", 0)
    # The queue was created again: the epoch is read from the log.
    me.epoch_seen(D, 7, "me")
    assert me.domains_to_take([D]) == [Takeover(D, 7)]
    assert me.took(D, 9)
    assert me.fence(D) is None, "the echo of the earlier barrier does not count"


def test_a_part_of_a_service_has_a_domain_of_its_own() -> None:
    assert service_domain("timers") == "service-timers"
    assert service_domain("provisioning", "a") == "service-provisioning-a"


def test_each_event_says_whether_it_is_news() -> None:
    me = LeaseState("me")
    assert [me.alive(name) for name in ("you", "you", "me")] == [True, False, False]
    assert [me.gone(name) for name in ("you", "you", "me")] == [True, False, False]
    taken(me, 7)
    assert [me.echoed(*echo) for echo in ((D, 6), ("other", 7), (D, 7), (D, 7))] == [
        False,
        False,
        True,
        False,
    ]
    assert [me.epoch_seen(D, *seen) for seen in ((7, "me"), (8, "you"), (9, "you"))] == [
        False,
        True,
        False,
    ]
    assert (me.known(D), me.owner(D), me.known("other"), me.took(D, 8)) == (9, "you", 0, False)
    assert [me.forgotten(D, epoch) for epoch in (8, 9)] == [False, False]
    assert (me.known(D), me.held(D)) == (0, None)


def test_an_earlier_echo_does_not_hide_a_later_one() -> None:
    me = LeaseState("me")
    me.domains_to_take([D])
    me.echoed(D, 7)
    me.echoed(D, 5)
    assert me.took(D, 7)
    assert (me.fence(D), me.leads()) == (7, [D])
