"""Ray nodes on 127.0.0.1 that run until the standard input ends; their address is then in a file.

python ray_nodes.py N_NODES CPUS_EACH FILE
"""

# mypy: disable-error-code="import-not-found,import-untyped"

import sys
from pathlib import Path

from ray.cluster_utils import Cluster


def main() -> None:
    n_nodes, n_cpus, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    each = {"num_cpus": n_cpus, "object_store_memory": 80 * 2**20}
    head = each | {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(n_nodes - 1):
        cluster.add_node(wait=False, **each)
    cluster.wait_for_nodes()
    aside = file.with_suffix(".new")
    aside.write_text(cluster.address)
    aside.rename(file)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
