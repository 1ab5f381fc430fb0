/* Tags of messages that carry derivatives. They differ from those of values, so that a rank which differentiates its
   end of a message never receives a value as the derivative if the other rank does not differentiate. */

#ifndef MPIJAX_MPI_TAGS_H
#define MPIJAX_MPI_TAGS_H

#include <mpi.h>

/* The content of a message. */
enum { MJ_VALUE, MJ_TANGENT, MJ_COTANGENT, MJ_KINDS };

/* The tags for receiving a derivative whose value is received with any tag. */
#define MJ_ANY_TANGENT -1000001
#define MJ_ANY_COTANGENT -1000002

/* Tags of values below this have one tag for tangents and one for cotangents; larger ones, not used, keep theirs. */
#define MJ_TAGS (1 << 20)

static int mj_last_tag(void) {
    static int last = 0;
    int *value, known = 0;
    if (last == 0 && MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &known) == MPI_SUCCESS && known)
        last = *value;
    return last;
}

static int mj_tags(void) {
    int part = mj_last_tag() / MJ_KINDS;
    return part < MJ_TAGS ? part : MJ_TAGS;
}

/* The kind of message with this tag: the highest tags are for tangents, those below for cotangents. */
static int mj_kind(int tag) {
    int below = mj_last_tag() - tag;
    if (tag < 0) return tag == MJ_ANY_TANGENT ? MJ_TANGENT : tag == MJ_ANY_COTANGENT ? MJ_COTANGENT : MJ_VALUE;
    return below < mj_tags() ? MJ_TANGENT : below < 2 * mj_tags() ? MJ_COTANGENT : MJ_VALUE;
}

/* The tag of the derivative of a message of values with this tag. */
static int mj_tag_of_kind(int tag, int kind) {
    if (kind == MJ_VALUE) return tag;
    if (tag < 0) return kind == MJ_TANGENT ? MJ_ANY_TANGENT : MJ_ANY_COTANGENT;
    return tag >= mj_tags() ? tag : mj_last_tag() - (kind - 1) * mj_tags() - tag;
}

/* The tag of the message of values that belongs to a message with this tag. */
static int mj_value_tag(int tag) {
    int kind = mj_kind(tag);
    return kind == MJ_VALUE ? tag : mj_last_tag() - (kind - 1) * mj_tags() - tag;
}

/* An error code with its own text; `code` caches it. */
static int mj_own_error(int *code, const char *text) {
    int class;
    if (*code == 0) {
        if (MPI_Add_error_class(&class) != MPI_SUCCESS || MPI_Add_error_code(class, code) != MPI_SUCCESS)
            return MPI_ERR_OTHER;
        MPI_Add_error_string(*code, text);
    }
    return *code;
}

/* Compares the received tag `came` with the expected tag `asked`: an error unless both are of the same kind. */
static int mj_check_kind(int asked, int came) {
    static int derivative = 0, value = 0;
    if (came < 0 || mj_kind(asked) == mj_kind(came)) return MPI_SUCCESS;
    if (mj_kind(asked) == MJ_VALUE)
        return mj_own_error(&derivative, "received a derivative instead of a value: this rank does not differentiate its "
                                         "end of an earlier message, but the sender does");
    return mj_own_error(&value, "received another message instead of a derivative: the sender does not "
                                "differentiate its end of the message, but this rank does");
}

#endif
