# A fork has its parent's memory, and so would draw the same random numbers as its siblings: the first cell in a new machine begins with new ones.
# Generators that your own code made (numpy.random.default_rng) are yours to make again.


def _reseed_in_forks(events):
    import random
    import sys

    def machine():
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read()

    def reseed(_info):
        nonlocal known
        if machine() == known:
            return
        known = machine()
        random.seed()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()

    known = machine()
    events.register("pre_run_cell", reseed)


_reseed_in_forks(get_ipython().events)  # noqa: F821
del _reseed_in_forks
