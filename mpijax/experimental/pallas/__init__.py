"""`mpijax.experimental.pallas`."""

from mpijax.experimental.pallas.call import pallas_call
from mpijax.experimental.pallas.memory import MemoryRef, MemorySpace
from mpijax.experimental.pallas.programs import num_programs, program_id
from mpijax.experimental.pallas.specs import *
ANY = MemorySpace.ANY
