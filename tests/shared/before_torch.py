"""Import this before torch: threads of tests that run beside other work sleep while they wait."""

from backpack_rank._threads import sleep_early

sleep_early()
