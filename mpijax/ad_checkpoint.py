"""What goes with `checkpoint`: names for values, policies that say which values to keep, and what is kept."""

from mpijax import checkpoint_policies as checkpoint_policies
from mpijax.ops.naming import checkpoint_name as checkpoint_name
from mpijax.transforms.policies import Offloadable as Offloadable
from mpijax.transforms.policies import Recompute as Recompute
from mpijax.transforms.policies import Saveable as Saveable
from mpijax.transforms.residuals import print_saved_residuals as print_saved_residuals
from mpijax.transforms.residuals import saved_residuals as saved_residuals
