"""``mpijax.federated``: simulations of federated learning, whose clients have data sets of different sizes.

Each rank works for some of the clients, and weighted means go over all of them. Names are those of FedJAX where it has
them.

This is a simulation for research. There is no secure aggregation and no differential privacy: a rank sees the data and
the updates of its clients, the sums travel as plain MPI messages, and every rank gets them.
"""

from mpijax.federated.clients import clients_of_rank, for_each_client, sample_clients
from mpijax.federated.datasets import ClientDataset
from mpijax.federated.means import tree_mean, tree_sum

__all__ = ["ClientDataset", "clients_of_rank", "for_each_client", "sample_clients", "tree_mean", "tree_sum"]
