"""The cgroups of version 2, as the cases in the guest look at them."""

ROOT = "/sys/fs/cgroup"


def value(path, file):
    with open(f"{ROOT}/{path}/{file}") as content:
        return content.read().strip()


def weight(shares):
    """cpu.weight of the groups that the agent owns: linear, as KEP-2254 has it."""
    return str(1 + (shares - 2) * 9999 // 262142)
