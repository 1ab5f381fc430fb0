"""``mpijax.federated``: simulations of federated learning with clients whose data sets have different sizes.

Each rank works for some of the clients, and weighted means include all clients. Functions that FedJAX has, too, have
its names.

The module is for research. It has no secure aggregation and no differential privacy: a rank sees the data and the
updates of its clients, sums are plain MPI messages, and every rank gets the sums.
"""

from mpijax.federated.clients import clients_of_rank, for_each_client, sample_clients
from mpijax.federated.datasets import ClientDataset
from mpijax.federated.means import tree_mean, tree_sum

__all__ = ["ClientDataset", "clients_of_rank", "for_each_client", "sample_clients", "tree_mean", "tree_sum"]
