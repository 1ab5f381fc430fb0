"""Names of mpijax. Written by tools/make_stubs.py from its table."""

from typing import Any

from mpijax import ad as ad
from mpijax import ad_checkpoint as ad_checkpoint
from mpijax import api_util as api_util
from mpijax import checkpoint_policies as checkpoint_policies
from mpijax import core as core
from mpijax import custom_batching as custom_batching
from mpijax import custom_derivatives as custom_derivatives
from mpijax import debug as debug
from mpijax import distributed as distributed
from mpijax import dlpack as dlpack
from mpijax import dtypes as dtypes
from mpijax import errors as errors
from mpijax import example_libraries as example_libraries
from mpijax import experimental as experimental
from mpijax import export as export
from mpijax import extend as extend
from mpijax import federated as federated
from mpijax import ffi as ffi
from mpijax import flatten_util as flatten_util
from mpijax import image as image
from mpijax import interpreters as interpreters
from mpijax import lax as lax
from mpijax import memory as memory
from mpijax import monitoring as monitoring
from mpijax import mpi as mpi
from mpijax import nn as nn
from mpijax import numpy as numpy
from mpijax import ops as ops
from mpijax import profiler as profiler
from mpijax import random as random
from mpijax import ref as ref
from mpijax import scipy as scipy
from mpijax import sharding as sharding
from mpijax import simulate as simulate
from mpijax import stages as stages
from mpijax import test_util as test_util
from mpijax import tree as tree
from mpijax import tree_util as tree_util
from mpijax import typing as typing
from mpijax import version as version
from mpijax.core.base.user_context import make_user_context as make_user_context
from mpijax.core.shapes.slices import ds as ds
from mpijax.core.sharding.context import get_abstract_mesh as get_abstract_mesh
from mpijax.core.sharding.context import use_abstract_mesh as use_abstract_mesh
from mpijax.core.sharding.mesh import make_mesh as make_mesh
from mpijax.core.sharding.mesh import set_mesh as set_mesh
from mpijax.core.sharding.shardings import NamedSharding as NamedSharding
from mpijax.core.tracing.refs import Ref as Ref
from mpijax.core.tracing.refs import empty_ref as empty_ref
from mpijax.core.tracing.refs import free_ref as free_ref
from mpijax.core.tracing.refs import freeze as freeze
from mpijax.core.tracing.refs import new_ref as new_ref
from mpijax.core.types.avals import ShapeDtypeStruct as ShapeDtypeStruct
from mpijax.core.types.typeof import typeof as typeof
from mpijax.distributed.notebook import load_ipython_extension as load_ipython_extension
from mpijax.distributed.spawning import spawn as spawn
from mpijax.ops.callbacks.host import pure_callback as pure_callback
from mpijax.ops.callbacks.numba_call import numba_call as numba_call
from mpijax.progress_bars import progress as progress
from mpijax.runtime.arrays.array import Shard as Shard
from mpijax.runtime.arrays.devices import Device as Device
from mpijax.runtime.arrays.devices import default_backend as default_backend
from mpijax.runtime.arrays.devices import device_count as device_count
from mpijax.runtime.arrays.devices import devices as devices
from mpijax.runtime.arrays.devices import host_count as host_count
from mpijax.runtime.arrays.devices import host_id as host_id
from mpijax.runtime.arrays.devices import host_ids as host_ids
from mpijax.runtime.arrays.devices import local_device_count as local_device_count
from mpijax.runtime.arrays.devices import local_devices as local_devices
from mpijax.runtime.arrays.devices import process_count as process_count
from mpijax.runtime.arrays.devices import process_index as process_index
from mpijax.runtime.arrays.devices import process_indices as process_indices
from mpijax.runtime.arrays.live import live_arrays as live_arrays
from mpijax.runtime.arrays.placement import block_until_ready as block_until_ready
from mpijax.runtime.arrays.placement import device_get as device_get
from mpijax.runtime.arrays.placement import device_put as device_put
from mpijax.scopes import checking_leaks as checking_leaks
from mpijax.scopes import copy_to_host_async as copy_to_host_async
from mpijax.scopes import disable_jit as disable_jit
from mpijax.scopes import effects_barrier as effects_barrier
from mpijax.scopes import named_call as named_call
from mpijax.scopes import named_scope as named_scope
from mpijax.scopes import print_environment_info as print_environment_info
from mpijax.sharding import get_mesh as get_mesh
from mpijax.spmd.arrays import make_array_from_callback as make_array_from_callback
from mpijax.spmd.arrays import make_array_from_process_local_data as make_array_from_process_local_data
from mpijax.spmd.arrays import make_array_from_single_device_arrays as make_array_from_single_device_arrays
from mpijax.spmd.pmap import pmap as pmap
from mpijax.spmd.reshard import reshard as reshard
from mpijax.spmd.shard_map import P as P
from mpijax.spmd.shard_map import shard_map as shard_map
from mpijax.spmd.shard_map import smap as smap
from mpijax.transforms.custom_jvp import custom_jvp as custom_jvp
from mpijax.transforms.custom_vjp import custom_vjp as custom_vjp
from mpijax.transforms.api import make_jaxpr as make_jaxpr
from mpijax.transforms.checkpoint import remat as remat
from mpijax.transforms.custom_gradient import custom_gradient as custom_gradient
from mpijax.transforms.inlining import Inline as Inline
from mpijax.version import __version__ as __version__
from mpijax.version import __version_info__ as __version_info__

def checkpoint(fun: Any, *, prevent_cse: Any = ..., policy: Any = ..., static_argnums: Any = ..., static_argnames: Any = ..., concrete: Any = ...) -> Any: ...
def ensure_compile_time_eval() -> Any: ...
def allow_f16_reductions(new_val: Any = ...) -> Any: ...
def array_garbage_collection_guard(new_val: Any = ...) -> Any: ...
def auto_pcast(new_val: Any = ...) -> Any: ...
def check_tracer_leaks(new_val: Any = ...) -> Any: ...
config: Any
def debug_infs(new_val: Any = ...) -> Any: ...
def debug_key_reuse(new_val: Any = ...) -> Any: ...
def debug_nans(new_val: Any = ...) -> Any: ...
def default_device(new_val: Any = ...) -> Any: ...
def default_matmul_precision(new_val: Any = ...) -> Any: ...
def default_prng_impl(new_val: Any = ...) -> Any: ...
def enable_checks(new_val: Any = ...) -> Any: ...
def enable_custom_prng(new_val: Any = ...) -> Any: ...
def enable_x64(new_val: Any = ...) -> Any: ...
def explain_cache_misses(new_val: Any = ...) -> Any: ...
def legacy_prng_key(new_val: Any = ...) -> Any: ...
def log_compiles(new_val: Any = ...) -> Any: ...
def no_execution(new_val: Any = ...) -> Any: ...
def no_tracing(new_val: Any = ...) -> Any: ...
def numpy_dtype_promotion(new_val: Any = ...) -> Any: ...
def numpy_rank_promotion(new_val: Any = ...) -> Any: ...
def remove_size_one_mesh_axis_from_type(new_val: Any = ...) -> Any: ...
def softmax_custom_jvp(new_val: Any = ...) -> Any: ...
def thread_guard(new_val: Any = ...) -> Any: ...
def threefry_partitionable(new_val: Any = ...) -> Any: ...
def transfer_guard(new_val: Any = ...) -> Any: ...
def transfer_guard_device_to_device(new_val: Any = ...) -> Any: ...
def transfer_guard_device_to_host(new_val: Any = ...) -> Any: ...
def transfer_guard_host_to_device(new_val: Any = ...) -> Any: ...
float0: Any
Array: Any
def clear_caches() -> Any: ...
def eval_shape(fun: Any, *args: Any, **kwargs: Any) -> Any: ...
def fwd_and_bwd(fun: Any, argnums: Any, has_aux: Any = ..., jitted: Any = ...) -> Any: ...
def grad(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ..., allow_int: Any = ..., reduce_axes: Any = ...) -> Any: ...
def hessian(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ...) -> Any: ...
def jacfwd(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ...) -> Any: ...
def jacobian(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ..., allow_int: Any = ...) -> Any: ...
def jacrev(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ..., allow_int: Any = ...) -> Any: ...
def jit(fun: Any = ..., /, *, in_shardings: Any = ..., out_shardings: Any = ..., static_argnums: Any = ..., static_argnames: Any = ..., donate_argnums: Any = ..., donate_argnames: Any = ..., keep_unused: Any = ..., device: Any = ..., backend: Any = ..., inline: Any = ..., compiler_options: Any = ...) -> Any: ...
def jvp(fun: Any, primals: Any, tangents: Any, has_aux: Any = ...) -> Any: ...
def linear_transpose(fun: Any, *primals: Any, reduce_axes: Any = ...) -> Any: ...
def linearize(fun: Any, *primals: Any, has_aux: Any = ...) -> Any: ...
def value_and_grad(fun: Any, argnums: Any = ..., has_aux: Any = ..., holomorphic: Any = ..., allow_int: Any = ..., reduce_axes: Any = ...) -> Any: ...
def vjp(fun: Any, *primals: Any, has_aux: Any = ..., reduce_axes: Any = ...) -> Any: ...
def vmap(fun: Any, in_axes: Any = ..., out_axes: Any = ..., axis_name: Any = ..., axis_size: Any = ..., spmd_axis_name: Any = ..., sum_match: Any = ...) -> Any: ...
def closure_convert(fun: Any, *example_args: Any) -> Any: ...
