"""What beginners do wrong: a name, and a function of the library (`J` is jax or mpijax) that must raise.

The user's line is in this file, so that a test can see that a traceback ends here.
"""

import math
from collections import namedtuple
from dataclasses import dataclass
from functools import partial

import numpy as np

Point = namedtuple("Point", "x y")
MISTAKES: dict = {}


def mistake(fun):
    """Enter a function in the table by its name."""
    MISTAKES[fun.__name__] = fun
    return fun


# ---- values under a transformation ----


@mistake
def if_on_a_traced_value(J):
    J.jit(lambda x: x if x > 0 else -x)(1.0)


@mistake
def while_on_a_traced_value(J):
    def f(x):
        while x < 3:
            x = x + 1
        return x

    J.jit(f)(1.0)


@mistake
def and_of_traced_values(J):
    J.jit(lambda x: (x > 0) and (x < 1))(0.5)


@mistake
def not_of_a_traced_value(J):
    J.jit(lambda x: not x)(True)


@mistake
def assert_of_a_traced_value(J):
    def f(x):
        assert J.numpy.all(x > 0)
        return x

    J.jit(f)(np.ones(3, np.float32))


@mistake
def float_of_a_traced_value(J):
    J.jit(lambda x: float(x) + 1)(1.0)


@mistake
def int_of_a_traced_value(J):
    J.jit(lambda x: int(x) + 1)(1)


@mistake
def item_of_a_traced_value(J):
    J.jit(lambda x: x.item())(1.0)


@mistake
def tolist_of_a_traced_value(J):
    J.jit(lambda x: x.tolist())(np.ones(3, np.float32))


@mistake
def range_of_a_traced_value(J):
    J.jit(lambda n: sum(range(n)))(3)


@mistake
def list_index_by_a_traced_value(J):
    J.jit(lambda i: [1, 2, 3][i])(1)


@mistake
def numpy_function_of_a_traced_value(J):
    J.jit(lambda x: np.sin(x))(1.0)


@mistake
def numpy_array_of_a_traced_value(J):
    J.jit(lambda x: np.array(x))(np.ones(3, np.float32))


@mistake
def numpy_item_assignment_of_a_traced_value(J):
    def f(x):
        out = np.zeros(3)
        out[0] = x
        return out

    J.jit(f)(1.0)


@mistake
def format_of_a_traced_value(J):
    J.jit(lambda x: f"{x:.3f}")(1.0)


@mistake
def boolean_mask_under_jit(J):
    J.jit(lambda x: x[x > 0])(np.arange(3, dtype=np.float32))


@mistake
def nonzero_under_jit(J):
    J.jit(lambda x: J.numpy.nonzero(x))(np.arange(3))


@mistake
def unique_under_jit(J):
    J.jit(lambda x: J.numpy.unique(x))(np.arange(3))


@mistake
def where_of_one_argument_under_jit(J):
    J.jit(lambda x: J.numpy.where(x > 0))(np.arange(3))


@mistake
def shape_from_a_traced_value(J):
    J.jit(lambda n: J.numpy.zeros(n))(3)


@mistake
def arange_of_a_traced_value(J):
    J.jit(lambda n: J.numpy.arange(n))(3)


@mistake
def reshape_by_a_traced_value(J):
    J.jit(lambda x, n: x.reshape(n, -1))(np.ones(4, np.float32), 2)


@mistake
def linspace_of_a_traced_number(J):
    J.jit(lambda n: J.numpy.linspace(0, 1, n))(3)


@mistake
def slice_of_traced_length(J):
    J.jit(lambda x, n: x[:n])(np.arange(4), 2)


@mistake
def axis_that_is_traced(J):
    J.jit(lambda x, a: J.numpy.sum(x, axis=a))(np.ones((2, 2), np.float32), 0)


@mistake
def traced_value_as_key_of_a_dict(J):
    J.jit(lambda x: {x: 1})(1.0)


@mistake
def traced_value_that_leaked(J):
    kept = []
    J.jit(lambda x: kept.append(x) or x)(1.0)
    kept[0] + 1


@mistake
def traced_value_that_leaked_from_grad(J):
    kept = []
    J.grad(lambda x: kept.append(x) or x)(1.0)
    J.numpy.sin(kept[0])


@mistake
def item_assignment(J):
    x = J.numpy.zeros(3)
    x[0] = 1


@mistake
def item_assignment_under_jit(J):
    def f(x):
        x[0] = 1
        return x

    J.jit(f)(np.zeros(3, np.float32))


@mistake
def item_deletion(J):
    x = J.numpy.zeros(3)
    del x[0]


# ---- jit ----


@mistake
def jit_of_no_function(J):
    J.jit(3)


@mistake
def jit_of_a_result(J):
    J.jit(J.numpy.sin(1.0))


@mistake
def static_argument_that_is_not_hashable(J):
    J.jit(lambda x, shape: x.reshape(shape), static_argnums=1)(np.ones(4), [2, 2])


@mistake
def static_array(J):
    J.jit(lambda x, y: x, static_argnums=1)(1.0, np.ones(3))


@mistake
def static_argnums_that_is_not_there(J):
    J.jit(lambda x: x, static_argnums=3)(1.0)


@mistake
def static_argnames_that_is_not_there(J):
    J.jit(lambda x: x, static_argnames="mode")(1.0)


@mistake
def jit_of_a_string(J):
    J.jit(lambda x, mode: x)(1.0, "fast")


@mistake
def jit_of_none_result_used(J):
    J.jit(lambda x: None)(1.0) + 1


@mistake
def jit_of_an_object(J):
    J.jit(lambda x: x)(object())


@mistake
def jit_that_returns_a_string(J):
    J.jit(lambda x: "done")(1.0)


@mistake
def jit_that_returns_a_function(J):
    J.jit(lambda x: lambda y: x)(1.0)


@mistake
def jit_with_too_many_arguments(J):
    J.jit(lambda x: x)(1.0, 2.0)


@mistake
def jit_with_too_few_arguments(J):
    J.jit(lambda x, y: x)(1.0)


@mistake
def donated_argument_used_again(J):
    x = J.numpy.ones(3)
    J.jit(lambda x: x + 1, donate_argnums=0)(x)
    x + 1


@mistake
def donate_argnums_that_is_not_there(J):
    J.jit(lambda x: x + 1, donate_argnums=2)(1.0)


# ---- grad, vmap, jvp, vjp ----


@mistake
def grad_of_a_vector(J):
    J.grad(lambda x: x * 2)(np.ones(3, np.float32))


@mistake
def grad_by_an_integer(J):
    J.grad(lambda x: x * 2.0)(3)


@mistake
def grad_of_an_integer_result(J):
    J.grad(lambda x: J.numpy.argmax(x))(np.ones(3, np.float32))


@mistake
def grad_of_none(J):
    J.grad(lambda x: None)(1.0)


@mistake
def grad_of_a_pair(J):
    J.grad(lambda x: (x, x))(1.0)


@mistake
def grad_of_a_dict(J):
    J.grad(lambda p: {"loss": p["w"] ** 2})({"w": 1.0})


@mistake
def grad_with_integer_parameters(J):
    J.grad(lambda p: (p["w"] * 2.0).sum())({"w": np.arange(3)})


@mistake
def has_aux_without_a_pair(J):
    J.grad(lambda x: x, has_aux=True)(1.0)


@mistake
def grad_argnums_that_is_not_there(J):
    J.grad(lambda x: x, argnums=1)(1.0)


@mistake
def grad_of_a_complex_result(J):
    J.grad(lambda x: x * 1j)(1.0)


@mistake
def grad_of_a_string(J):
    J.grad(lambda x: 1.0)("x")


@mistake
def reverse_mode_through_a_while_loop(J):
    J.grad(lambda x: J.lax.while_loop(lambda c: c < 3, lambda c: c * 2, x))(1.0)


@mistake
def jvp_with_a_wrong_tangent_dtype(J):
    J.jvp(lambda x: x, (1.0,), (1,))


@mistake
def jvp_with_a_wrong_tangent_shape(J):
    J.jvp(lambda x: x, (np.ones(3, np.float32),), (np.ones(2, np.float32),))


@mistake
def jvp_with_a_list(J):
    J.jvp(lambda x: x, [1.0], 1.0)


@mistake
def vjp_with_a_wrong_cotangent(J):
    J.vjp(lambda x: x, np.ones(3, np.float32))[1](np.ones(2, np.float32))


@mistake
def vmap_of_different_sizes(J):
    J.vmap(lambda x, y: x + y)(np.ones(3, np.float32), np.ones(4, np.float32))


@mistake
def vmap_of_a_scalar(J):
    J.vmap(lambda x: x)(1.0)


@mistake
def vmap_without_mapped_arguments(J):
    J.vmap(lambda x: x, in_axes=None)(np.ones(3, np.float32))


@mistake
def vmap_over_an_axis_that_is_not_there(J):
    J.vmap(lambda x: x, in_axes=1)(np.ones(3, np.float32))


@mistake
def vmap_with_too_many_in_axes(J):
    J.vmap(lambda x: x, in_axes=(0, 0))(np.ones(3, np.float32))


@mistake
def vmap_in_axes_of_a_wrong_kind(J):
    J.vmap(lambda x: x, in_axes="0")(np.ones(3, np.float32))


@mistake
def vmap_of_nothing(J):
    J.vmap(lambda: 1)()


@mistake
def jacobian_of_integers(J):
    J.jacfwd(lambda x: x * 2)(np.arange(3))


@mistake
def custom_vjp_without_rules(J):
    J.grad(J.custom_vjp(lambda x: x))(1.0)


@mistake
def custom_vjp_with_a_wrong_number_of_cotangents(J):
    f = J.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, None), lambda res, g: (g,))
    J.grad(f)(1.0, 2.0)


@mistake
def custom_jvp_without_rule(J):
    J.jvp(J.custom_jvp(lambda x: x), (1.0,), (1.0,))


# ---- loops and branches ----


@mistake
def scan_with_a_carry_that_changes_dtype(J):
    J.lax.scan(lambda c, x: (c + 1.5, None), np.int32(0), None, length=3)


@mistake
def scan_with_a_carry_that_changes_shape(J):
    J.lax.scan(lambda c, x: (J.numpy.stack([c, c]), None), np.float32(0), None, length=3)


@mistake
def scan_body_without_a_pair(J):
    J.lax.scan(lambda c, x: c, 0.0, np.ones(3, np.float32))


@mistake
def scan_without_a_length(J):
    J.lax.scan(lambda c, x: (c, None), 0.0, None)


@mistake
def scan_of_different_lengths(J):
    J.lax.scan(lambda c, x: (c, None), 0.0, (np.ones(3, np.float32), np.ones(4, np.float32)))


@mistake
def scan_of_a_scalar(J):
    J.lax.scan(lambda c, x: (c, x), 0.0, 1.0)


@mistake
def fori_loop_of_a_float(J):
    J.lax.fori_loop(0, 3.5, lambda i, x: x, 0.0)


@mistake
def fori_loop_with_a_body_of_one_argument(J):
    J.lax.fori_loop(0, 3, lambda x: x, 0.0)


@mistake
def fori_loop_that_changes_dtype(J):
    J.lax.fori_loop(0, 3, lambda i, x: x + 0.5, np.int32(1))


@mistake
def while_loop_with_a_condition_that_is_no_boolean(J):
    J.lax.while_loop(lambda x: x, lambda x: x - 1, 3.0)


@mistake
def while_loop_that_changes_structure(J):
    J.lax.while_loop(lambda c: True, lambda c: (c, c), 1.0)


@mistake
def while_loop_with_a_condition_of_a_vector(J):
    J.lax.while_loop(lambda x: x > 0, lambda x: x - 1, np.ones(3, np.float32))


@mistake
def cond_with_branches_of_different_dtypes(J):
    J.lax.cond(True, lambda x: x, lambda x: x > 0, 1.0)


@mistake
def cond_with_branches_of_different_shapes(J):
    J.lax.cond(True, lambda x: x, lambda x: x[None], np.float32(1.0))


@mistake
def cond_with_branches_of_different_structures(J):
    J.lax.cond(True, lambda x: (x, x), lambda x: x, 1.0)


@mistake
def cond_of_a_vector(J):
    J.lax.cond(np.array([True, False]), lambda x: x, lambda x: x, 1.0)


@mistake
def cond_of_a_string(J):
    J.lax.cond("yes", lambda x: x, lambda x: x, 1.0)


@mistake
def switch_without_branches(J):
    J.lax.switch(0, [], 1.0)


@mistake
def switch_by_a_float(J):
    J.lax.switch(0.5, [lambda x: x, lambda x: -x], 1.0)


# ---- arrays ----


@mistake
def number_that_is_too_large(J):
    J.numpy.array(2**40)


@mistake
def number_that_is_too_large_in_a_sum(J):
    J.numpy.ones(3, np.int32) + 2**40


@mistake
def negative_number_in_an_unsigned_array(J):
    J.numpy.uint8(-1)


@mistake
def array_of_strings(J):
    J.numpy.array(["a", "b"])


@mistake
def array_of_objects(J):
    J.numpy.array([object()])


@mistake
def array_of_none(J):
    J.numpy.array([1, None])


@mistake
def array_of_ragged_lists(J):
    J.numpy.array([[1, 2], [3]])


@mistake
def array_of_a_dict(J):
    J.numpy.array({"a": 1})


@mistake
def dtype_that_is_not_there(J):
    J.numpy.zeros(3, dtype="float33")


@mistake
def list_as_an_argument(J):
    J.numpy.sum([1, 2, 3])


@mistake
def list_as_an_argument_of_sin(J):
    J.numpy.sin([1.0, 2.0])


@mistake
def list_as_the_first_of_two(J):
    J.numpy.add([1, 2], J.numpy.ones(2))


@mistake
def none_as_an_argument(J):
    J.numpy.sin(None)


@mistake
def string_as_an_argument(J):
    J.numpy.exp("x")


@mistake
def dict_as_an_argument(J):
    J.numpy.mean({"a": 1})


@mistake
def sum_of_a_string_and_an_array(J):
    J.numpy.ones(3) + "a"


@mistake
def sum_of_none_and_an_array(J):
    J.numpy.ones(3) + None


@mistake
def sum_of_a_list_and_an_array(J):
    J.numpy.ones(3) + [1, 2, 3]


@mistake
def shapes_that_do_not_broadcast(J):
    J.numpy.ones((2, 3)) + J.numpy.ones((4,))


@mistake
def matmul_of_wrong_sizes(J):
    J.numpy.ones((2, 3)) @ J.numpy.ones((2, 3))


@mistake
def matmul_with_a_scalar(J):
    J.numpy.ones((2, 3)) @ 2.0


@mistake
def dot_of_wrong_sizes(J):
    J.numpy.dot(J.numpy.ones(3), J.numpy.ones(4))


@mistake
def einsum_with_a_wrong_number_of_operands(J):
    J.numpy.einsum("ij,jk->ik", J.numpy.ones((2, 3)))


@mistake
def einsum_of_wrong_sizes(J):
    J.numpy.einsum("ij,jk->ik", J.numpy.ones((2, 3)), J.numpy.ones((2, 3)))


@mistake
def einsum_with_an_unknown_letter(J):
    J.numpy.einsum("ij->k", J.numpy.ones((2, 3)))


@mistake
def reshape_to_a_wrong_size(J):
    J.numpy.ones(6).reshape(4, 2)


@mistake
def reshape_with_two_unknown_sizes(J):
    J.numpy.ones(6).reshape(-1, -1)


@mistake
def reshape_by_floats(J):
    J.numpy.ones(6).reshape(2.0, 3.0)


@mistake
def concatenate_of_wrong_shapes(J):
    J.numpy.concatenate([J.numpy.ones((2, 3)), J.numpy.ones((2, 4))])


@mistake
def concatenate_of_nothing(J):
    J.numpy.concatenate([])


@mistake
def concatenate_of_scalars(J):
    J.numpy.concatenate([1.0, 2.0])


@mistake
def stack_of_different_shapes(J):
    J.numpy.stack([J.numpy.ones(2), J.numpy.ones(3)])


@mistake
def stack_of_an_array_and_none(J):
    J.numpy.stack([J.numpy.ones(2), None])


@mistake
def split_into_unequal_parts(J):
    J.numpy.split(J.numpy.ones(5), 2)


@mistake
def axis_that_is_not_there(J):
    J.numpy.sum(J.numpy.ones((2, 3)), axis=2)


@mistake
def axis_twice(J):
    J.numpy.sum(J.numpy.ones((2, 3)), axis=(0, 0))


@mistake
def axis_that_is_a_float(J):
    J.numpy.sum(J.numpy.ones((2, 3)), axis=0.5)


@mistake
def transpose_by_wrong_axes(J):
    J.numpy.transpose(J.numpy.ones((2, 3)), (0,))


@mistake
def squeeze_of_an_axis_of_more_than_one(J):
    J.numpy.squeeze(J.numpy.ones((2, 3)), axis=0)


@mistake
def expand_dims_too_far(J):
    J.numpy.expand_dims(J.numpy.ones(3), 3)


@mistake
def broadcast_to_a_wrong_shape(J):
    J.numpy.broadcast_to(J.numpy.ones(3), (2, 4))


@mistake
def too_many_indices(J):
    J.numpy.ones(3)[0, 1]


@mistake
def index_by_a_float(J):
    J.numpy.ones(3)[1.5]


@mistake
def index_by_a_list(J):
    J.numpy.ones(3)[[0, 1]]


@mistake
def index_by_a_string(J):
    J.numpy.ones(3)["a"]


@mistake
def index_by_a_float_array(J):
    J.numpy.ones(3)[J.numpy.array([0.0, 1.0])]


@mistake
def mask_of_a_wrong_size(J):
    J.numpy.ones(3)[np.array([True, False])]


@mistake
def slice_with_a_float(J):
    J.numpy.ones(3)[0:1.5]


@mistake
def at_with_call(J):
    J.numpy.ones(3).at(0)


@mistake
def at_set_of_a_wrong_shape(J):
    J.numpy.ones(3).at[0:2].set(J.numpy.ones(3))


@mistake
def truth_of_an_array(J):
    bool(J.numpy.ones(3))


@mistake
def if_of_an_array(J):
    if J.numpy.ones(3) > 0:
        pass


@mistake
def float_of_an_array(J):
    float(J.numpy.ones(3))


@mistake
def length_of_a_scalar(J):
    len(J.numpy.array(1.0))


@mistake
def loop_over_a_scalar(J):
    for _ in J.numpy.array(1.0):
        pass


@mistake
def unpacking_of_a_wrong_number(J):
    a, b = J.numpy.ones(3)
    return a, b


@mistake
def array_as_a_key_of_a_dict(J):
    {J.numpy.ones(3): 1}


@mistake
def method_that_is_not_there(J):
    J.numpy.ones(3).append(1)


@mistake
def function_that_is_not_there(J):
    J.numpy.sinus(1.0)


@mistake
def arange_without_arguments(J):
    J.numpy.arange()


@mistake
def zeros_of_a_negative_size(J):
    J.numpy.zeros(-1)


@mistake
def zeros_of_a_float(J):
    J.numpy.zeros(3.0)


@mistake
def zeros_of_two_numbers(J):
    J.numpy.zeros(3, 4)


@mistake
def inverse_of_a_vector(J):
    J.numpy.linalg.inv(J.numpy.ones(3))


@mistake
def solve_of_wrong_sizes(J):
    J.numpy.linalg.solve(J.numpy.eye(3), J.numpy.ones(4))


@mistake
def argmax_of_nothing(J):
    J.numpy.argmax(J.numpy.zeros(0))


@mistake
def maximum_of_nothing(J):
    J.numpy.max(J.numpy.zeros(0))


@mistake
def bitwise_and_of_floats(J):
    J.numpy.ones(3) & J.numpy.ones(3)


@mistake
def lax_add_of_different_dtypes(J):
    J.lax.add(J.numpy.ones(3), J.numpy.arange(3))


@mistake
def lax_add_of_different_shapes(J):
    J.lax.add(J.numpy.ones((2, 3)), J.numpy.ones((3,)))


# ---- random numbers ----


@mistake
def number_as_a_key(J):
    J.random.normal(42, (3,))


@mistake
def number_as_a_key_of_split(J):
    J.random.split(42)


@mistake
def none_as_a_key(J):
    J.random.uniform(None)


@mistake
def shape_in_place_of_the_key(J):
    J.random.normal((3,))


@mistake
def several_keys_as_one(J):
    J.random.normal(J.random.split(J.random.key(0)), (3,))


@mistake
def seed_that_is_a_float(J):
    J.random.key(1.5)


@mistake
def sum_of_a_key(J):
    J.random.key(0) + 1


@mistake
def integer_normal(J):
    J.random.normal(J.random.key(0), (3,), dtype=np.int32)


@mistake
def randint_without_bounds(J):
    J.random.randint(J.random.key(0), (3,))


@mistake
def choice_of_more_than_there_are(J):
    J.random.choice(J.random.key(0), 3, (5,), replace=False)


@mistake
def generator_that_is_not_there(J):
    J.random.key(0, impl="mersenne")


# ---- trees and devices ----


@mistake
def trees_of_different_structures(J):
    J.tree.map(lambda a, b: a + b, {"a": 1}, {"b": 1})


@mistake
def trees_of_different_lengths(J):
    J.tree.map(lambda a, b: a + b, [1, 2], [1])


@mistake
def unflatten_with_too_few_leaves(J):
    J.tree.unflatten(J.tree.structure([1, 2]), [1])


@mistake
def named_tuple_against_a_tuple(J):
    J.tree.map(lambda a, b: a + b, Point(1, 2), (1, 2))


@mistake
def collective_over_an_axis_that_is_not_bound(J):
    J.lax.psum(1.0, "ranks")


@mistake
def mesh_of_a_wrong_number_of_names(J):
    J.sharding.Mesh(np.array(J.devices()[:1]), ("x", "y"))


@mistake
def partition_of_an_axis_that_the_mesh_lacks(J):
    mesh = J.sharding.Mesh(np.array(J.devices()[:1]), ("x",))
    J.sharding.NamedSharding(mesh, J.sharding.PartitionSpec("y"))


@mistake
def partition_longer_than_the_shape(J):
    mesh = J.sharding.Mesh(np.array(J.devices()[:1]), ("x",))
    J.device_put(np.ones(3, np.float32), J.sharding.NamedSharding(mesh, J.sharding.PartitionSpec("x", None)))


@mistake
def shard_map_with_a_wrong_number_of_specs(J):
    mesh, spec = J.sharding.Mesh(np.array(J.devices()[:1]), ("x",)), J.sharding.PartitionSpec("x")
    J.shard_map(lambda x, y: x, mesh=mesh, in_specs=(spec,), out_specs=spec)(np.ones(2), np.ones(2))


@mistake
def option_that_is_not_there(J):
    J.config.update("jax_enable_x46", True)


@mistake
def option_of_a_wrong_value(J):
    J.config.update("jax_numpy_rank_promotion", "maybe")


@mistake
def partial_with_an_array_as_static(J):
    J.jit(partial(lambda n, x: J.numpy.zeros(n) + x, x=1.0))(np.int32(3))


def mesh_of_one(J, *names):
    """A mesh of one device with these axes, all of size 1."""
    return J.sharding.Mesh(np.array(J.devices()[:1]).reshape((1,) * len(names)), names)


def on_one(J, fun, in_specs, out_specs, **options):
    """`fun` under shard_map over the axis x of one device."""
    return J.shard_map(fun, mesh=mesh_of_one(J, "x"), in_specs=in_specs, out_specs=out_specs, **options)


# ---- meshes, shardings and collectives ----


@mistake
def mesh_of_more_devices_than_there_are(J):
    J.make_mesh((1_000_000,), ("x",))


@mistake
def mesh_shape_and_names_of_different_lengths(J):
    J.make_mesh((1, 1), ("x",))


@mistake
def partition_with_an_axis_twice(J):
    J.sharding.NamedSharding(mesh_of_one(J, "x", "y"), J.P("x", "x"))


@mistake
def sharding_by_a_tuple(J):
    J.sharding.NamedSharding(mesh_of_one(J, "x"), ("x",))


@mistake
def device_put_to_a_partition_without_a_mesh(J):
    J.device_put(np.ones(2, np.float32), J.P("x"))


@mistake
def device_put_to_a_string(J):
    J.device_put(np.ones(2, np.float32), "cpu")


@mistake
def constraint_without_a_mesh(J):
    J.jit(lambda x: J.lax.with_sharding_constraint(x, J.P("x")))(np.ones(2, np.float32))


@mistake
def constraint_longer_than_the_shape(J):
    sharding = J.sharding.NamedSharding(mesh_of_one(J, "x"), J.P(None, "x"))
    J.jit(lambda x: J.lax.with_sharding_constraint(x, sharding))(np.ones(2, np.float32))


@mistake
def in_shardings_of_a_wrong_number(J):
    s = J.sharding.NamedSharding(mesh_of_one(J, "x"), J.P())
    J.jit(lambda x: x, in_shardings=(s, s))(np.ones(2, np.float32))


@mistake
def out_shardings_of_a_wrong_structure(J):
    s = J.sharding.NamedSharding(mesh_of_one(J, "x"), J.P())
    J.jit(lambda x: x, out_shardings=(s, s))(np.ones(2, np.float32))


@mistake
def shard_map_without_in_specs(J):
    J.shard_map(lambda x: x, mesh=mesh_of_one(J, "x"), out_specs=J.P("x"))(np.ones(2, np.float32))


@mistake
def shard_map_of_a_scalar_that_is_split(J):
    on_one(J, lambda x: x, J.P("x"), J.P("x"))(np.float32(1))


@mistake
def shard_map_spec_of_an_axis_that_the_mesh_lacks(J):
    on_one(J, lambda x: x, J.P("y"), J.P("y"))(np.ones(2, np.float32))


@mistake
def shard_map_result_of_a_wrong_rank(J):
    on_one(J, lambda x: x.sum(), J.P("x"), J.P("x"))(np.ones(2, np.float32))


@mistake
def shard_map_result_that_varies_said_to_be_the_same(J):
    on_one(J, lambda x: x, J.P("x"), J.P())(np.ones(2, np.float32))


@mistake
def shard_map_result_of_a_wrong_structure(J):
    on_one(J, lambda x: (x, x), J.P("x"), (J.P("x"),))(np.ones(2, np.float32))


@mistake
def collective_over_an_axis_of_another_mesh(J):
    on_one(J, lambda x: J.lax.psum(x, "rows"), J.P("x"), J.P("x"))(np.ones(2, np.float32))


@mistake
def collective_without_an_axis(J):
    on_one(J, lambda x: J.lax.psum(x), J.P("x"), J.P())(np.ones(2, np.float32))


@mistake
def ppermute_to_one_rank_twice(J):
    on_one(J, lambda x: J.lax.ppermute(x, "x", [(0, 0), (0, 0)]), J.P("x"), J.P("x"))(np.ones(2, np.float32))


@mistake
def ppermute_to_a_rank_that_is_not_there(J):
    on_one(J, lambda x: J.lax.ppermute(x, "x", [(0, 3)]), J.P("x"), J.P("x"))(np.ones(2, np.float32))


@mistake
def axis_index_outside_of_shard_map(J):
    J.jit(lambda x: x + J.lax.axis_index("x"))(1)


@mistake
def psum_scatter_of_a_scalar(J):
    on_one(J, lambda x: J.lax.psum_scatter(x[0], "x"), J.P("x"), J.P())(np.ones(2, np.float32))


@mistake
def all_to_all_over_an_axis_that_is_not_there(J):
    on_one(J, lambda x: J.lax.all_to_all(x, "x", 0, 4), J.P("x"), J.P("x"))(np.ones(2, np.float32))


@mistake
def pmap_over_more_devices_than_there_are(J):
    J.pmap(lambda x: x)(np.ones((4096, 2), np.float32))


@mistake
def index_of_a_device_that_is_not_there(J):
    J.device_put(1.0, J.devices()[4096])


# ---- lax, linalg, fft and callbacks ----


@mistake
def dynamic_slice_with_too_few_starts(J):
    J.lax.dynamic_slice(np.ones((4, 4), np.float32), (0,), (2, 2))


@mistake
def dynamic_slice_that_is_too_large(J):
    J.lax.dynamic_slice(np.ones(4, np.float32), (0,), (5,))


@mistake
def dynamic_update_of_a_wrong_dtype(J):
    J.lax.dynamic_update_slice(np.ones(4, np.float32), np.ones(2, np.int32), (0,))


@mistake
def dot_general_of_wrong_sizes(J):
    J.lax.dot_general(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32), (((1,), (0,)), ((), ())))


@mistake
def convolution_of_wrong_features(J):
    J.lax.conv(np.ones((1, 3, 8, 8), np.float32), np.ones((4, 2, 3, 3), np.float32), (1, 1), "SAME")


@mistake
def reduce_window_of_a_wrong_rank(J):
    J.lax.reduce_window(np.ones((4, 4), np.float32), 0.0, J.lax.add, (2,), (1,), "VALID")


@mistake
def pad_with_a_wrong_number_of_pairs(J):
    J.lax.pad(np.ones((2, 2), np.float32), np.float32(0), [(0, 0, 0)])


@mistake
def top_k_of_more_than_there_are(J):
    J.lax.top_k(np.ones(3, np.float32), 5)


@mistake
def lax_sin_of_integers(J):
    J.lax.sin(np.arange(3))


@mistake
def clamp_of_different_shapes(J):
    J.lax.clamp(np.zeros(2, np.float32), np.ones(3, np.float32), np.ones(3, np.float32))


@mistake
def cholesky_of_a_rectangle(J):
    J.numpy.linalg.cholesky(np.ones((2, 3), np.float32))


@mistake
def determinant_of_a_rectangle(J):
    J.numpy.linalg.det(np.ones((2, 3), np.float32))


@mistake
def eigenvalues_of_a_vector(J):
    J.numpy.linalg.eigh(np.ones(3, np.float32))


@mistake
def norm_of_an_unknown_order(J):
    J.numpy.linalg.norm(np.ones((2, 2), np.float32), ord="max")


@mistake
def fft_over_an_axis_that_is_not_there(J):
    J.numpy.fft.fft(np.ones(4, np.float32), axis=2)


@mistake
def fft_of_length_zero(J):
    J.numpy.fft.fft(np.ones(4, np.float32), n=0)


@mistake
def callback_of_no_function(J):
    J.pure_callback(3, J.ShapeDtypeStruct((), np.float32), 1.0)


@mistake
def gradient_of_a_callback(J):
    J.grad(lambda x: J.pure_callback(lambda y: y, J.ShapeDtypeStruct((), np.float32), x))(1.0)


@mistake
def debug_print_with_a_missing_value(J):
    J.jit(lambda x: J.debug.print("{x} {y}", x=x))(1.0)


@mistake
def one_hot_of_a_traced_size(J):
    J.jit(lambda n: J.nn.one_hot(np.arange(3), n))(3)


@mistake
def repeat_by_traced_counts(J):
    J.jit(lambda n: J.numpy.repeat(np.ones(3, np.float32), n))(2)


@mistake
def take_with_an_unknown_mode(J):
    J.numpy.take(np.ones(3), np.array([0]), mode="around")


@mistake
def where_of_shapes_that_do_not_broadcast(J):
    J.numpy.where(np.array([True, False]), np.ones(3), np.ones(3))


@mistake
def moveaxis_too_far(J):
    J.numpy.moveaxis(np.ones((2, 3)), 0, 2)


@mistake
def tile_by_a_float(J):
    J.numpy.tile(np.ones(3), 2.5)


@mistake
def polyfit_of_different_lengths(J):
    J.numpy.interp(np.ones(3), np.arange(3.0), np.arange(4.0))


@mistake
def eval_shape_of_a_string(J):
    J.eval_shape(lambda x: x, "a")


@mistake
def linear_transpose_of_what_is_not_linear(J):
    J.linear_transpose(lambda x: x * x, 1.0)(1.0)


@mistake
def associative_scan_of_different_lengths(J):
    J.lax.associative_scan(J.lax.add, (np.ones(3, np.float32), np.ones(4, np.float32)))


@mistake
def map_over_a_scalar(J):
    J.lax.map(lambda x: x, 1.0)


# ---- a second round: what slips into programs of every day ----


@mistake
def max_of_a_traced_value(J):
    J.jit(lambda x: max(x, 0.0))(1.0)


@mistake
def comparison_in_a_chain(J):
    J.jit(lambda x: 0 < x < 1)(0.5)


@mistake
def sorted_of_traced_values(J):
    J.jit(lambda x, y: sorted([x, y])[0])(1.0, 2.0)


@mistake
def square_root_of_pythons_math(J):
    J.jit(lambda x: math.sqrt(x))(1.0)


@mistake
def numpy_array_of_a_traced_size(J):
    J.jit(lambda n: np.zeros(n))(3)



@mistake
def static_argument_that_is_a_dict(J):
    J.jit(lambda x, options: x, static_argnames="options")(1.0, options={"rate": 0.1})


@mistake
def static_argnums_by_a_name(J):
    J.jit(lambda x, n: x, static_argnums="n")(1.0, 2)


@mistake
def compiled_function_of_another_shape(J):
    J.jit(lambda x: x).lower(np.ones(3, np.float32)).compile()(np.ones(4, np.float32))


@mistake
def compiled_function_with_too_many_arguments(J):
    J.jit(lambda x: x).lower(np.ones(3, np.float32)).compile()(np.ones(3, np.float32), 1.0)


@mistake
def grad_with_keywords_only(J):
    J.grad(lambda x, y: x * y)(x=1.0, y=2.0)


@mistake
def grad_of_a_function_without_arguments(J):
    J.grad(lambda: 1.0)()


@mistake
def custom_jvp_with_a_tangent_of_a_wrong_shape(J):
    f = J.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (primals[0], J.numpy.ones((2,))))
    J.jvp(f, (np.ones(3, np.float32),), (np.ones(3, np.float32),))


@mistake
def custom_vjp_with_a_forward_rule_of_one_result(J):
    f = J.custom_vjp(lambda x: x)
    f.defvjp(lambda x: x, lambda residuals, ct: (ct,))
    J.grad(f)(1.0)


@mistake
def checkpoint_with_a_policy_by_name(J):
    J.grad(J.checkpoint(lambda x: J.numpy.sin(x), policy="dots_saveable"))(1.0)


@mistake
def vmap_with_out_axes_too_large(J):
    J.vmap(lambda x: x, out_axes=2)(np.ones(3, np.float32))


@mistake
def vmap_with_out_axes_none(J):
    J.vmap(lambda x: x, out_axes=None)(np.ones(3, np.float32))


@mistake
def vmap_with_a_keyword_of_another_size(J):
    J.vmap(lambda x, y: x + y)(np.ones(3, np.float32), y=np.ones(2, np.float32))


@mistake
def vmap_with_the_name_of_another_axis(J):
    J.vmap(lambda x: J.lax.psum(x, "j"), axis_name="i")(np.ones(3, np.float32))


@mistake
def scan_body_that_returns_nothing(J):
    J.lax.scan(lambda carry, x: None, 0.0, np.ones(3, np.float32))


@mistake
def scan_with_none_as_the_carry(J):
    J.lax.scan(lambda carry, x: (x, carry), None, np.ones(3, np.float32))


@mistake
def scan_with_the_arguments_exchanged(J):
    J.lax.scan(lambda x, carry: (x + carry, x), np.ones(3, np.float32), 0.0)


@mistake
def while_loop_over_two_arguments(J):
    J.lax.while_loop(lambda a, b: a < b, lambda a, b: (a + 1, b), (0, 3))


@mistake
def cond_of_values(J):
    J.lax.cond(True, 1.0, 2.0)


@mistake
def cond_with_too_many_operands(J):
    J.lax.cond(True, lambda x: x, lambda x: -x, 1.0, 2.0)


@mistake
def switch_of_functions_with_different_results(J):
    J.lax.switch(0, [lambda x: x, lambda x: (x, x)], 1.0)


@mistake
def update_with_too_many_indices(J):
    J.numpy.ones(3).at[0, 1].set(1.0)


@mistake
def update_with_a_string(J):
    J.numpy.ones(3).at[0].set("a")


@mistake
def assignment_to_the_shape(J):
    J.numpy.ones(4).shape = (2, 2)


@mistake
def method_of_a_list(J):
    J.numpy.ones(3).append(1.0)


@mistake
def addition_into_an_array(J):
    J.numpy.add(1.0, 2.0, out=np.ones(3))


@mistake
def linspace_of_a_float(J):
    J.numpy.linspace(0, 1, 2.5)


@mistake
def identity_of_a_float(J):
    J.numpy.eye(2.5)


@mistake
def rows_of_different_lengths(J):
    J.numpy.vstack([np.ones(2), np.ones(3)])


@mistake
def cross_product_of_four_components(J):
    J.numpy.cross(np.ones(4), np.ones(4))


@mistake
def tensordot_of_wrong_sizes(J):
    J.numpy.tensordot(np.ones((2, 3)), np.ones((2, 3)), axes=1)


@mistake
def stacks_of_matrices_of_different_lengths(J):
    J.numpy.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5)))


@mistake
def take_along_axis_of_a_wrong_rank(J):
    J.numpy.take_along_axis(np.ones((2, 3)), np.array([0]), axis=1)


@mistake
def bincount_of_floats(J):
    J.numpy.bincount(np.ones(3))


@mistake
def conversion_to_a_misspelt_dtype(J):
    J.numpy.ones(3).astype("flaot32")


@mistake
def gradient_of_an_integer_in_a_sum(J):
    J.numpy.add(J.grad(lambda x: x * 1.0, allow_int=True)(1), 1.0)


@mistake
def keys_split_into_a_float(J):
    J.random.split(J.random.key(0), 2.5)


@mistake
def uniform_between_bounds_of_another_shape(J):
    J.random.uniform(J.random.key(0), (3,), minval=np.zeros(2, np.float32))


@mistake
def bernoulli_of_an_integer(J):
    J.random.bernoulli(J.random.key(0), 1)


@mistake
def key_as_a_numpy_array(J):
    np.asarray(J.random.key(0))


@mistake
def key_plus_a_number(J):
    J.random.key(0) + 1


@mistake
def key_of_several_seeds(J):
    J.random.key(np.array([1, 2]))


@mistake
def permutation_of_a_float(J):
    J.random.permutation(J.random.key(0), 2.5)



@mistake
def tree_map_with_the_arguments_exchanged(J):
    J.tree.map({"a": 1.0}, lambda x: x)


@mistake
def tree_with_none_for_an_array(J):
    J.tree.map(lambda x, y: x, {"a": None}, {"a": 1.0})


@mistake
def unflatten_with_too_many_leaves(J):
    J.tree.unflatten(J.tree.structure({"a": 1}), [1, 2])


@mistake
def dataclass_without_its_fields(J):
    @dataclass
    class Weights:
        w: float
        b: float

    J.tree_util.register_dataclass(Weights, data_fields=["w"], meta_fields=[])


@mistake
def sharding_by_a_list(J):
    J.sharding.NamedSharding(mesh_of_one(J, "x"), ["x"])


@mistake
def memory_kind_that_is_not_there(J):
    J.sharding.NamedSharding(mesh_of_one(J, "x"), J.sharding.PartitionSpec(), memory_kind="hbm")


@mistake
def mesh_of_devices_in_set_mesh(J):
    J.set_mesh(J.devices())


@mistake
def device_put_to_a_list_of_devices(J):
    J.device_put(np.ones(2, np.float32), J.devices())


@mistake
def in_shardings_without_a_mesh(J):
    J.jit(lambda x: x, in_shardings=J.sharding.PartitionSpec("x"))(np.ones(2, np.float32))


@mistake
def array_from_a_callback_of_a_wrong_shape(J):
    sharding = J.sharding.NamedSharding(mesh_of_one(J, "x"), J.sharding.PartitionSpec("x"))
    J.make_array_from_callback((4,), sharding, lambda index: np.ones(3, np.float32))


@mistake
def shard_map_of_a_number(J):
    J.shard_map(3, mesh=mesh_of_one(J, "x"), in_specs=J.sharding.PartitionSpec(), out_specs=J.sharding.PartitionSpec())


@mistake
def shard_map_with_the_name_as_a_spec(J):
    J.shard_map(lambda x: x, mesh=mesh_of_one(J, "x"), in_specs="x", out_specs="x")(np.ones(2, np.float32))


@mistake
def shard_map_without_out_specs(J):
    J.shard_map(lambda x: x, mesh=mesh_of_one(J, "x"), in_specs=J.sharding.PartitionSpec())



@mistake
def slice_in_dim_of_a_traced_size(J):
    J.jit(lambda n: J.lax.dynamic_slice_in_dim(np.ones(4, np.float32), 0, n))(2)


@mistake
def lax_concatenate_of_different_dtypes(J):
    J.lax.concatenate([np.ones(2, np.float32), np.ones(2, np.int32)], 0)



@mistake
def softmax_over_an_axis_that_is_not_there(J):
    J.nn.softmax(np.ones(3, np.float32), axis=1)


@mistake
def initializer_of_a_vector(J):
    J.nn.initializers.glorot_uniform()(J.random.key(0), (3,))


@mistake
def singular_values_of_a_vector(J):
    J.numpy.linalg.svd(np.ones(3, np.float32))


@mistake
def callback_that_returns_another_shape(J):
    J.pure_callback(lambda x: np.ones(3, np.float32), J.ShapeDtypeStruct((2,), np.float32), 1.0)
