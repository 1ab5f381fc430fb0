/* Lanes: rings (mpi_ring.h) between ranks of a node, for messages of programs whose other side may be an MPI call.

   A lane leads from one rank to another. It is used only if both ranks agree, and only while both are inside a run of a
   compiled program. So each message is received as MPI requires, whatever mpi4py calls come before and after.
   The time in which a lane is in use is a session:

   sender      receiver    event                                                                  then
   by MPI      by MPI      a message of this communicator arrived by MPI in this run: the
                           receiver offers the lane                                               by MPI, on offer
   by MPI      on offer    the sender sends a tag that was received so: it takes the offer,
                           sends a fence by MPI, and puts the message into the lane               by lane, on offer
   by MPI      on offer    the receiver withdraws the offer: it leaves its run, calls Python,
                           receives from another source, or has waited too long                   by MPI, by MPI
   by lane     on offer    the fence is MPI's next message: everything sent by MPI before, in
                           this run or by mpi4py, has been received                               by lane, by lane
   by lane     by lane     the receiver reads the next message (`mj_ring_pass`)                   by lane, by lane
   by lane     by lane     the receiver ends the session, for one of the reasons above            by lane, left
   by lane     any         the sender ends it: it leaves its run, calls Python, sends a message
                           that is too long or has another tag, or its patience is over; it
                           sends unread messages again by MPI and sets `gone`                     by MPI, as before
   by MPI      by lane     the receiver sees that the sender has gone                             by MPI, by MPI
   by MPI      left        the same, when it would offer again                                    by MPI, by MPI

   The rank that ends a session sets the lowest bit of the count of messages read. No message is read once it is set, so
   each one is either read or sent again. A receiver whose offer has been taken reads the fence before it leaves. The
   next session continues the count of the last one, so no message is mistaken for an earlier one.
   tests/runtime/mpi/test_lane_model.py explores this.

   Offers are safe for this reason: a receive that mpi4py posted before the run, and that could take a message of the
   lane, would have taken the message after which the lane was offered.

   Before a sender waits for anything else, it waits until its messages are read, or sends them by MPI. While it waits
   for a message, it sends those by MPI that nobody has read for a while, or whose reader has left. So no rank waits
   long for a message that MPI does not see.

   Only one thread of a rank at a time uses lanes; other threads' messages go by MPI. */

#ifndef MPIJAX_MPI_LANES_H
#define MPIJAX_MPI_LANES_H

#include "mpi_early.h"

#define MJ_LANE_TRIES 16            /* messages in a run after which an offer that nobody takes is withdrawn */
#define MJ_LANE_TAGS 4              /* different tags in a session */
#define MJ_LANE_ENDS 4              /* sessions that the sender may end in a run before it takes no more */
#define MJ_LANE_LOOKS 16            /* polls of a lane between two polls of the others */
#define MJ_POSTED (1 << 14)         /* maximum bytes of a message of which a copy is kept */

enum { MJ_LANE_SHUT, MJ_LANE_OFFERED, MJ_LANE_TAKEN, MJ_LANE_STATES };

/* Cache lines, grouped by their writer. */
typedef struct {
    _Atomic uint64_t state;         /* plus session * MJ_LANE_STATES; the receiver's, but the sender takes */
    uint64_t group;                 /* the receiver's, written before it offers */
    _Atomic uint32_t tags;          /* the number of tags below; the receiver's */
    int32_t tag[MJ_LANE_TAGS];
    char unused1[MJ_LINE - 20 - 4 * MJ_LANE_TAGS];
    _Atomic uint64_t left;          /* the receiver's: the last session that it has ended */
    char unused2[MJ_LINE - 8];
    _Atomic uint64_t gone;          /* the sender's: the last session whose unread messages it has sent again */
    uint64_t sent;                  /* the sender's: total messages put, written before `gone` */
    char unused3[MJ_LINE - 16];
    mj_ring ring;
} mj_lane;

/* This rank's state of the lane to another rank, and of the lane from it. */
typedef struct {
    mj_lane *lane;
    MPI_Comm comm;
    int rank;                       /* the receiver's in `comm` */
    int active, count, ends;        /* whether it is taken; in this run: messages sent, sessions ended */
    uint64_t session;
    mj_ring_end end;
    int64_t since;                  /* when unread messages were first seen */
} mj_lane_out;

typedef struct {
    mj_lane *lane;
    MPI_Comm comm;
    int rank;                       /* the sender's in `comm` */
    enum { MJ_BY_MPI, MJ_ON_OFFER, MJ_BY_LANE, MJ_LEFT } mode;   /* left: ended here, perhaps not yet by the sender */
    int count;                      /* messages received by MPI in this run that could have used a lane */
    uint64_t session;
    mj_ring_end end;
} mj_lane_in;

static int mj_lane_ranks = 0;       /* ranks of this node; 0: there are no lanes */
static mj_lane_out *mj_outs = NULL;
static mj_lane_in *mj_ins = NULL;
static int mj_lanes_taken = 0;      /* lanes taken by this rank, which may contain unread messages */
static int64_t mj_lane_messages = 0;    /* received through lanes */

/* Nanoseconds that a sender waits for a reader before it sends by MPI; the same while it waits for a message. */
static int64_t mj_lane_patience = 20000, mj_lane_rest = 1000000;

static atomic_flag mj_lanes_busy = ATOMIC_FLAG_INIT;
static _Thread_local int mj_lanes_are_mine = 0;

/* Whether this thread is the one that uses lanes, until the end of its run. */
static inline int mj_lanes_mine(void) {
    if (!mj_lanes_are_mine) mj_lanes_are_mine = !atomic_flag_test_and_set(&mj_lanes_busy);
    return mj_lanes_are_mine;
}

/* Makes lanes between all ranks of a communicator of one node, unless they cannot share memory. */
static int mj_lanes_open(MPI_Comm node) {
    static mj_shared shared;
    mj_lane *all;
    int rc, own, ranks;
    MPI_Comm_size(node, &ranks);
    MPI_Comm_rank(node, &shared.rank);
    if ((rc = mj_shared_open(&shared, node, sizeof(mj_lane) * (size_t)(ranks * ranks))) != MPI_SUCCESS) return rc;
    if (shared.state != MJ_READY) return MPI_SUCCESS;
    all = shared.memory, own = shared.rank;
    mj_outs = calloc((size_t)ranks, sizeof(mj_lane_out));
    mj_ins = calloc((size_t)ranks, sizeof(mj_lane_in));
    if (mj_outs == NULL || mj_ins == NULL) return MPI_ERR_NO_MEM;
    for (int other = 0; other < ranks; other++) {
        mj_outs[other].lane = all + own * ranks + other;
        mj_ins[other].lane = all + other * ranks + own;
        mj_outs[other].end.ring = &mj_outs[other].lane->ring;
        mj_ins[other].end.ring = &mj_ins[other].lane->ring;
    }
    mj_lane_ranks = ranks;
    return MPI_SUCCESS;
}

/* The tag of the fence that the sender sends by MPI when it takes a lane; no value uses it. */
static int mj_fence_tag(void) {
    int values = mj_last_tag() - 2 * mj_tags();
    return values > 8 * MJ_TAGS ? values / 2 + 7919 : values;
}

static inline uint64_t mj_lane_state(uint64_t session, int what) { return session * MJ_LANE_STATES + (uint64_t)what; }

/* ---- communicators ---- */

/* A number that identifies a communicator, equal on all of its ranks. It is computed from the parent's number and the
   count of communicators made from the parent: all ranks make them in the same order, so nothing is sent. */
typedef struct {
    uint64_t number, made;
} mj_group;

static int mj_group_key = MPI_KEYVAL_INVALID;

static uint64_t mj_next_group(mj_group *parent) { return parent->number * 0x9E3779B97F4A7C15u + ++parent->made; }

static int mj_group_freed(MPI_Comm comm, int key, void *group, void *unused) {
    (void)comm, (void)key, (void)unused;
    free(group);
    return MPI_SUCCESS;
}

/* A duplicate counts as a new communicator. */
static int mj_group_copied(MPI_Comm comm, int key, void *unused, void *parent, void *copy, int *kept) {
    mj_group *group = calloc(1, sizeof(mj_group));
    (void)comm, (void)key, (void)unused;
    if (group != NULL) group->number = mj_next_group(parent);
    *(mj_group **)copy = group;
    *kept = group != NULL;
    return MPI_SUCCESS;
}

/* NULL for a communicator whose messages go by MPI. */
static mj_group *mj_group_of(MPI_Comm comm) {
    mj_group *group = NULL;
    int found = 0;
    if (mj_group_key == MPI_KEYVAL_INVALID || MPI_Comm_get_attr(comm, mj_group_key, &group, &found) != MPI_SUCCESS) return NULL;
    return found ? group : NULL;
}

static int mj_set_group(MPI_Comm comm, uint64_t number) {
    mj_group *group = calloc(1, sizeof(mj_group));
    int rc = group == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    if (rc == MPI_SUCCESS && mj_group_key == MPI_KEYVAL_INVALID)
        rc = MPI_Comm_create_keyval(mj_group_copied, mj_group_freed, &mj_group_key, NULL);
    if (rc == MPI_SUCCESS) {
        group->number = number;
        rc = MPI_Comm_set_attr(comm, mj_group_key, group);
    }
    if (rc != MPI_SUCCESS) free(group);
    return rc;
}

/* ---- the sender ---- */

static inline int mj_lane_is_left(mj_lane_out *out) {
    return atomic_load_explicit(&out->lane->left, memory_order_acquire) == out->session;
}

/* Ends a session: unread messages are sent again by MPI. */
static int mj_lane_end(mj_lane_out *out) {
    mj_lane *lane = out->lane;
    int rc = MPI_SUCCESS;
    uint64_t read = atomic_fetch_or(&lane->ring.read, 1) >> 1;
    for (; rc == MPI_SUCCESS && read < out->end.count; read++) {
        mj_message *slot = &lane->ring.slots[read % MJ_SLOTS];
        rc = mj_post(slot->data, slot->nbytes, out->rank, (int)slot->tag, out->comm);
    }
    out->active = 0;
    out->ends++;
    mj_lanes_taken--;
    lane->sent = out->end.count;
    atomic_store_explicit(&lane->gone, out->session, memory_order_release);
    return rc;
}

/* Whether messages have been unread in the lane for long; for a rank that polls. */
static int mj_lane_rests(mj_lane_out *out) {
    uint64_t before = out->end.seen, unread = mj_ring_unread(&out->end);
    if (unread == 0 || out->end.seen > before || out->since == 0) {
        out->since = unread == 0 ? 0 : mj_now();
        return 0;
    }
    return mj_now() - out->since > mj_lane_rest;
}

/* Ends sessions whose receivers have left or do not continue; called while waiting. */
static int mj_lanes_look(void) {
    int rc = MPI_SUCCESS;
    for (int to = 0; mj_lanes_taken > 0 && rc == MPI_SUCCESS && to < mj_lane_ranks; to++) {
        mj_lane_out *out = &mj_outs[to];
        if (out->active && (mj_lane_is_left(out) || (out->end.count > out->end.seen && mj_lane_rests(out)))) rc = mj_lane_end(out);
    }
    return rc;
}

/* Whether at most `unread` messages remain unread before the sender's patience is over. */
static int mj_lane_is_read(mj_lane_out *out, uint64_t unread) {
    int64_t began = 0;
    for (int looks = 1;; looks++) {
        if (mj_ring_unread(&out->end) <= unread) return 1;
        if (mj_lane_is_left(out)) return 0;
        mj_look_again(0);
        if (looks % MJ_LANE_LOOKS) continue;
        if (began == 0) began = mj_now();
        else if (mj_now() - began > mj_lane_patience) return 0;
    }
}

/* Before this rank may block: waits until its messages in lanes are read, or sends them by MPI. */
static int mj_lanes_settle(void) {
    int rc = MPI_SUCCESS;
    for (int to = 0; mj_lanes_are_mine && mj_lanes_taken > 0 && rc == MPI_SUCCESS && to < mj_lane_ranks; to++)
        if (mj_outs[to].active && !mj_lane_is_read(&mj_outs[to], 0)) rc = mj_lane_end(&mj_outs[to]);
    return rc;
}

/* Whether messages of a tag may go through the lane. */
static inline int mj_lane_has(mj_lane *lane, int tag) {
    uint32_t tags = atomic_load_explicit(&lane->tags, memory_order_acquire);
    for (uint32_t i = 0; i < tags; i++)
        if (lane->tag[i] == tag) return 1;
    return 0;
}

/* Takes the lane if it is offered for such messages. */
static int mj_lane_takes(mj_lane_out *out, uint64_t group, int dest, int tag, MPI_Comm c, int *rc) {
    mj_lane *lane = out->lane;
    uint64_t state = atomic_load_explicit(&lane->state, memory_order_acquire), session = state / MJ_LANE_STATES;
    if (out->count == 0 || out->ends >= MJ_LANE_ENDS || state % MJ_LANE_STATES != MJ_LANE_OFFERED || lane->group != group
        || !mj_lane_has(lane, tag)
        || !atomic_compare_exchange_strong(&lane->state, &state, mj_lane_state(session, MJ_LANE_TAKEN)))
        return 0;
    out->active = 1, out->session = session, out->end.seen = out->end.count, out->since = 0, out->comm = c, out->rank = dest;
    mj_lanes_taken++;
    *rc = mj_post(&session, sizeof session, dest, mj_fence_tag(), c);
    return 1;
}

/* Puts the message into the lane if it may go there; returns whether it did. */
static int mj_lane_put(mj_lane_out *out, uint64_t group, const void *s, int64_t nbytes, int dest, int tag, MPI_Comm c,
                       int *rc) {
    mj_lane *lane = out->lane;
    if (!out->active && (nbytes > MJ_SLOT || !mj_lane_takes(out, group, dest, tag, c, rc))) return 0;
    if (*rc != MPI_SUCCESS) return 1;
    if (lane->group != group) return 0;     /* another communicator: their messages have no mutual order */
    if (nbytes > MJ_SLOT || !mj_lane_has(lane, tag) || mj_lane_is_left(out)
        || (out->end.count - out->end.seen >= MJ_SLOTS && !mj_lane_is_read(out, MJ_SLOTS - 1))) {
        *rc = mj_lane_end(out);
        return *rc != MPI_SUCCESS;
    }
    mj_ring_put(&out->end, s, nbytes, tag);
    return 1;
}

/* ---- the receiver ---- */

static inline int mj_lane_is_gone(mj_lane_in *in) {
    return atomic_load_explicit(&in->lane->gone, memory_order_acquire) == in->session;
}

/* Offers the lane, after a message with this tag has arrived by MPI. */
static void mj_lane_offer(mj_lane_in *in, uint64_t group, int source, int tag, MPI_Comm c) {
    mj_lane *lane = in->lane;
    uint32_t tags = in->count > 1 && lane->group == group ? atomic_load_explicit(&lane->tags, memory_order_relaxed) : 0;
    if (in->mode == MJ_LEFT && !mj_lane_is_gone(in)) return;
    if (in->mode == MJ_ON_OFFER && lane->group != group) return;
    if (tags < MJ_LANE_TAGS && (tags == 0 || !mj_lane_has(lane, tag))) {
        lane->tag[tags] = tag;
        atomic_store_explicit(&lane->tags, tags + 1, memory_order_release);
    }
    if (in->mode == MJ_ON_OFFER) return;
    lane->group = group;
    in->end.count = lane->sent;     /* messages unread before this have arrived by MPI */
    atomic_store(&lane->ring.read, 2 * in->end.count);
    atomic_store(&lane->state, mj_lane_state(++in->session, MJ_LANE_OFFERED));
    in->mode = MJ_ON_OFFER, in->rank = source, in->comm = c;
}

/* Waits for a request of MPI; meanwhile ends sessions that others leave. */
static int mj_lane_wait(MPI_Request *request, MPI_Status *status) {
    int done = 0, rc = MPI_SUCCESS;
    if (mj_lanes_taken == 0) return MPI_Wait(request, status);
    while (rc == MPI_SUCCESS) {
        rc = MPI_Test(request, &done, status);
        if (done || rc != MPI_SUCCESS) break;
        rc = mj_lanes_look();
    }
    return rc;
}

static int mj_take_fence(mj_lane_in *in) {
    MPI_Request request;
    uint64_t session;
    int rc = MPI_Irecv(&session, sizeof session, MPI_BYTE, in->rank, mj_fence_tag(), in->comm, &request);
    if (rc == MPI_SUCCESS) rc = mj_lane_wait(&request, MPI_STATUS_IGNORE);
    in->mode = MJ_BY_LANE;
    return rc;
}

/* Withdraws an offer, or ends a session: from now on messages arrive by MPI. */
static int mj_lane_leave(mj_lane_in *in) {
    mj_lane *lane = in->lane;
    uint64_t offered = mj_lane_state(in->session, MJ_LANE_OFFERED);
    int rc = MPI_SUCCESS;
    if (in->mode == MJ_BY_MPI || in->mode == MJ_LEFT) return MPI_SUCCESS;
    if (in->mode == MJ_ON_OFFER) {
        if (atomic_compare_exchange_strong(&lane->state, &offered, mj_lane_state(in->session, MJ_LANE_SHUT))) {
            in->mode = MJ_BY_MPI;
            return MPI_SUCCESS;
        }
        rc = mj_take_fence(in);
    }
    atomic_fetch_or(&lane->ring.read, 1);
    atomic_store_explicit(&lane->left, in->session, memory_order_release);
    in->mode = MJ_LEFT;
    return rc;
}

/* Receives the next message from the lane; returns 0 if the session has ended and the message comes by MPI. */
static int mj_lane_take(mj_lane_in *in, void *r, int64_t nbytes, int tag, int *rc) {
    mj_message *m;
    for (int64_t looks = 1; (m = mj_ring_next(&in->end)) == NULL; looks++) {
        mj_look_again(looks);
        if (looks % MJ_LANE_LOOKS) continue;
        if (mj_lane_is_gone(in)) break;
        if ((*rc = mj_lanes_look()) != MPI_SUCCESS) return 0;
    }
    if (m != NULL && tag >= 0 && tag != m->tag) {       /* the requested message comes later */
        *rc = mj_lane_leave(in);
        return 0;
    }
    if (m != NULL) {
        memcpy(r, m->data, (size_t)(m->nbytes < nbytes ? m->nbytes : nbytes));
        *rc = mj_check_message(m, nbytes, tag);
        if (mj_ring_pass(&in->end)) {
            mj_lane_messages++;
            return 1;
        }
        *rc = MPI_SUCCESS;
        while (!mj_lane_is_gone(in)) sched_yield();     /* the sender is about to send it by MPI */
    }
    in->mode = MJ_LEFT;
    return 0;
}

static int mj_lane_probe(mj_lane_in *in, int tag, MPI_Status *status, int *rc) {
    int come = 0;
    if (*rc == MPI_SUCCESS) *rc = MPI_Iprobe(in->rank, tag, in->comm, &come, status);
    return come;
}

/* Waits until MPI has the next message, or the fence before it; returns whether the message comes by MPI. */
static int mj_lane_is_by_mpi(mj_lane_in *in, int tag, int *rc) {
    MPI_Status first, other;
    int any = tag < 0 ? MPI_ANY_TAG : tag, fence = mj_fence_tag();
    uint64_t taken = mj_lane_state(in->session, MJ_LANE_TAKEN);
    for (int64_t looks = 1; *rc == MPI_SUCCESS; looks++) {
        if (atomic_load_explicit(&in->lane->state, memory_order_acquire) != taken) {
            if (mj_lane_probe(in, any, &first, rc) && first.MPI_TAG != fence) return 1;     /* it was taken meanwhile */
        } else if (mj_lane_probe(in, MPI_ANY_TAG, &first, rc)) {
            /* The first may have a tag that is not requested now. MPI keeps the order in which a rank sends. */
            int fenced = first.MPI_TAG == fence || mj_lane_probe(in, fence, &other, rc);
            if (first.MPI_TAG != fence && mj_lane_probe(in, any, &other, rc)) return 1;
            if (fenced && *rc == MPI_SUCCESS) {
                *rc = mj_take_fence(in);
                return 0;
            }
        }
        if (looks % MJ_LANE_LOOKS == 0 && *rc == MPI_SUCCESS) *rc = mj_lanes_look();
        if (looks >= MJ_SPINS) mj_hand_over(looks - MJ_SPINS);     /* probing has already advanced MPI */
    }
    return 1;
}

/* ---- both ---- */

/* Withdraws all offers, and ends all sessions in which this rank receives. */
static int mj_lanes_leave(void) {
    int rc = MPI_SUCCESS;
    for (int from = 0; mj_lanes_are_mine && rc == MPI_SUCCESS && from < mj_lane_ranks; from++)
        rc = mj_lane_leave(&mj_ins[from]);
    return rc;
}

/* At the end of a run, and before a call of Python: stops the use of all lanes. */
static int mj_lanes_stop(void) {
    int rc = mj_lanes_leave();
    if (!mj_lanes_are_mine) return rc;
    for (int other = 0; other < mj_lane_ranks; other++) {
        mj_lane_out *out = &mj_outs[other];
        if (out->active) {
            mj_lane_is_read(out, 0);
            int code = mj_lane_end(out);
            if (rc == MPI_SUCCESS) rc = code;
        }
        out->count = out->ends = mj_ins[other].count = 0;
    }
    mj_lanes_are_mine = 0;
    atomic_flag_clear(&mj_lanes_busy);
    return rc;
}

/* ---- messages of bytes in a program. to, from: the peer's rank on this node, or -1; group: the communicator ---- */

static int mj_lane_send(int to, uint64_t group, const void *s, int64_t nbytes, int dest, int tag, MPI_Comm c, int early) {
    int rc = MPI_SUCCESS;
    if (to >= 0 && mj_lane_put(&mj_outs[to], group, s, nbytes, dest, tag, c, &rc)) return rc;
    if (to >= 0) mj_outs[to].count++;
    if (rc == MPI_SUCCESS && nbytes > MJ_POSTED) rc = mj_lanes_settle();    /* the send may block */
    if (rc != MPI_SUCCESS) return rc;
    return early || (mj_lanes_taken && nbytes <= MJ_POSTED) ? mj_post(s, nbytes, dest, tag, c)
                                                           : mj_send(s, nbytes, MPI_BYTE, dest, tag, c);
}

static int mj_lane_recv(int from, uint64_t group, void *r, int64_t nbytes, int source, int tag, MPI_Comm c) {
    mj_lane_in *in = from < 0 ? NULL : &mj_ins[from];
    MPI_Request request;
    MPI_Status status;
    int rc = MPI_SUCCESS, any = tag < 0 ? MPI_ANY_TAG : tag;
    int here = in != NULL && in->lane->group == group;
    if (here && in->mode == MJ_ON_OFFER) mj_lane_is_by_mpi(in, tag, &rc);
    if (here && in->mode == MJ_BY_LANE && rc == MPI_SUCCESS && mj_lane_take(in, r, nbytes, tag, &rc)) return rc;
    if (rc == MPI_SUCCESS) rc = MJ(MPI_Irecv)(r, (mj_count)nbytes, MPI_BYTE, source, any, c, &request);
    if (rc == MPI_SUCCESS) rc = mj_lane_wait(&request, &status);
    if (rc == MPI_SUCCESS) rc = mj_check_length(r, nbytes, MPI_BYTE, &status, 0);
    if (rc == MPI_SUCCESS) rc = mj_check_kind(tag, status.MPI_TAG);
    if (rc != MPI_SUCCESS || in == NULL) return rc;
    if (in->mode == MJ_BY_LANE) return MPI_SUCCESS;     /* the lane serves another communicator */
    if (++in->count > MJ_LANE_TRIES) return mj_lane_leave(in);
    mj_lane_offer(in, group, source, status.MPI_TAG, c);
    return MPI_SUCCESS;
}

static int mj_lane_sendrecv(int to, int from, uint64_t group, const void *s, int64_t sn, int dest, int stag, void *r,
                            int64_t rn, int source, int rtag, MPI_Comm c) {
    MPI_Request request = MPI_REQUEST_NULL;
    void *copy = NULL;
    int rc = MPI_SUCCESS, code;
    if (sn <= MJ_POSTED) {
        rc = mj_lane_send(to, group, s, sn, dest, stag, c, 1);
    } else {
        if (to >= 0 && mj_lane_put(&mj_outs[to], group, s, sn, dest, stag, c, &rc)) return rc;  /* too long for it */
        if (s == r && (copy = malloc((size_t)sn)) == NULL) return MPI_ERR_NO_MEM;
        if (s == r) s = memcpy(copy, s, (size_t)sn);
        rc = MJ(MPI_Isend)(s, (mj_count)sn, MPI_BYTE, dest, stag, c, &request);
    }
    if (rc == MPI_SUCCESS) rc = mj_lane_recv(from, group, r, rn, source, rtag, c);
    code = mj_lane_wait(&request, MPI_STATUS_IGNORE);
    free(copy);
    return rc != MPI_SUCCESS ? rc : code;
}

#endif
