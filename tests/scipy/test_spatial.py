"""Rotations against SciPy, in double precision, and their derivatives."""

import numpy as np
import pytest
from oracle import OURS
from scipy.spatial.transform import Rotation as Theirs
from scipy.spatial.transform import Slerp as TheirSlerp

RNG = np.random.default_rng(0)
QUATS = RNG.normal(size=(7, 4))
SEQUENCES = ["xyz", "yxz", "xzy", "zxz", "yzy"]


@pytest.fixture(autouse=True)
def double():
    with OURS.enable_x64(True):
        yield


@pytest.fixture
def Rotation():
    return OURS.scipy.spatial.transform.Rotation


def close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=1e-12)


def same(ours, theirs):
    close(ours.as_matrix(), theirs.as_matrix())


@pytest.mark.parametrize("form", ["matrix", "rotvec", "mrp", "quat"])
@pytest.mark.one_in(2)
def test_forms_go_to_and_fro(Rotation, form):
    theirs, ours = Theirs.from_quat(QUATS), Rotation.from_quat(QUATS)
    written = getattr(theirs, f"as_{form}")()
    close(getattr(ours, f"as_{form}")(), written)
    same(getattr(Rotation, f"from_{form}")(written), theirs)
    same(getattr(Rotation, f"from_{form}")(written[0]), theirs[0])


def test_matrices_by_each_component(Rotation):
    for axis in range(3):
        vector = np.eye(3)[axis] * 3.0
        same(Rotation.from_matrix(Theirs.from_rotvec(vector).as_matrix()), Theirs.from_rotvec(vector))


def test_angles_about_axes(Rotation):
    angles = RNG.uniform(-1.5, 1.5, size=(5, 3))
    for seq in [*SEQUENCES, *(s.upper() for s in SEQUENCES)]:
        same(Rotation.from_euler(seq, angles), Theirs.from_euler(seq, angles))
        close(Rotation.from_quat(QUATS).as_euler(seq), Theirs.from_quat(QUATS).as_euler(seq))
    close(Rotation.from_euler("z", 90, degrees=True).as_euler("xyz", degrees=True), [0, 0, 90])
    same(Rotation.from_euler("ZX", [0.1, 0.2]), Theirs.from_euler("ZX", [0.1, 0.2]))


@pytest.mark.parametrize("seq", ["xyz", "XYZ", "zxz", "ZXZ"])
def test_gimbal_lock_leaves_the_rotation(Rotation, seq):
    middle = 0.0 if seq[0] == seq[2] else np.pi / 2
    locked = Theirs.from_euler(seq, [0.3, middle, 0.5])
    again = Rotation.from_quat(locked.as_quat()).as_euler(seq)
    np.testing.assert_allclose(Rotation.from_euler(seq, again).as_matrix(), locked.as_matrix(), atol=1e-7)


@pytest.fixture
def ranks_agree():
    """Operands of different ranks are errors."""
    with OURS.numpy_rank_promotion("raise"):
        yield


@pytest.mark.usefixtures("ranks_agree")
def test_products_inverses_magnitudes_means(Rotation):
    theirs, ours = Theirs.from_quat(QUATS), Rotation.from_quat(QUATS)
    same(ours * ours[2], theirs * theirs[2])
    same(ours.inv(), theirs.inv())
    close(ours.magnitude(), theirs.magnitude())
    weights = RNG.uniform(1, 2, 7)
    same(ours.mean(weights), theirs.mean(weights))
    same(Rotation.concatenate([ours, ours[:2]]), Theirs.concatenate([theirs, theirs[:2]]))
    close(ours.as_quat(canonical=True, scalar_first=True), theirs.as_quat(canonical=True, scalar_first=True))
    vectors = RNG.normal(size=(7, 3))
    close(ours.apply(vectors), theirs.apply(vectors))
    close(ours.apply(vectors[0], inverse=True), theirs.apply(vectors[0], inverse=True))
    assert len(ours) == 7 and not ours.single and ours[0].single
    close(Rotation.identity(2).as_matrix(), [np.eye(3)] * 2)
    close(Rotation.random(OURS.random.key(0), 3).inv().magnitude() >= 0, [True] * 3)


@pytest.mark.usefixtures("ranks_agree")
def test_interpolation(Rotation):
    times, at = [0.0, 1.0, 3.0], [0.0, 0.5, 1.0, 2.5, 3.0]
    theirs = TheirSlerp(times, Theirs.from_quat(QUATS[:3]))
    ours = OURS.scipy.spatial.transform.Slerp.init(times, Rotation.from_quat(QUATS[:3]))
    same(ours(at), theirs(at))
    same(OURS.jit(lambda s, t: s(t))(ours, 0.5), theirs(0.5))


def test_derivatives_where_formulas_change(Rotation):
    for vector in (np.zeros(3), np.array([1e-5, 0, 0]), np.array([0.3, 0.2, 0.1])):
        turn = lambda v: Rotation.from_rotvec(v).as_rotvec()
        close(OURS.jacobian(turn)(vector), np.eye(3))


@pytest.mark.parametrize(
    ("seq", "angles", "message"),
    [("xyzx", [0.0] * 4, "1 or 2 or 3 axes"), ("xY", [0.0, 0], "axes from"), ("xxz", [0.0] * 3, "different"), ("xy", [0.0], "shape")],
)
def test_wrong_axes(Rotation, seq, angles, message):
    with pytest.raises(ValueError, match=message):
        Rotation.from_euler(seq, angles)
