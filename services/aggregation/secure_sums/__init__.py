"""Secure sums: sessions in which a committee of clerks removes the masks from a sum of updates.

  selecting ── all keys offered ──► open ── enough delivered ──► counting ── shares agree ──► closing ──► done
     │   ▲                          │  ▲                          1 ready check, repeated       masks removed
     └───┘ silent clerk replaced    └──┘ deadline extended        2 commits to survivors        by the round
                                                                  3 share sums

    any state before done ── cannot continue ──► failed ──► a new session with another committee, or no sum

A session is one committee serving one sum of one round. `state_machine.next_step` chooses a step from the session, its
members, the time and a few facts. `coordinator` carries steps out with `committee_selection`, `survivor_agreement` and
`retry`; `unmasking` removes the masks when the round closes. `duty_index` names devices that may have duties.
"""
