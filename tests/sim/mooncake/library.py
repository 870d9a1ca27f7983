"""The client library of a simulated process: the imitated one over the simulated network."""

from typing import Any

from tests.sim.mooncake.seams import here
from tests.sim.mooncake.threads import wait
from tests.support.mooncake import fake_client
from tests.support.mooncake.fake_client import ObjectDataType, ReplicateConfig

__all__ = ["MooncakeDistributedStore", "ObjectDataType", "ReplicateConfig"]


class MooncakeDistributedStore(fake_client.MooncakeDistributedStore):
    """One client, owned by the simulated process in whose context it is called."""

    def setup(self, **options: Any) -> int:
        super().setup(**options)
        process = here()
        self._id = process.new_client()
        return 0

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        process = here()
        network = process.moon.network
        process.takes_lease(name)
        return wait(
            lambda: network.rpc(
                process.act(), lambda: network.cluster.call(name, *args, **kwargs), self._timeout_s
            )
        )
