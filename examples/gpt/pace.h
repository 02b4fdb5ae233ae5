// pace.h - which ranks compute for much longer than others that have the same work. Part of gpt.c.
//
// A rank's own time is that of its actions, without what it waits for in them: for parameters and gradients
// (on_unit_phase), and for layers' peers. All ranks of one place (elastic.h) have the same work, so their own
// times differ only where a machine, or a processor, is slow: then the others wait for it in each step.
//     rank 0   computes | waits                |        rank 1 is named: it computes 3 times as long
//     rank 1   computes . . . . . . . . . . .  |        as the median of its peers
//     rank 2   computes   | waits              |

#define SLOW_FROM    1.5 // times the median of its peers: a rank is named
#define SLOW_UNTIL   1.2 // it is again as fast as they are
#define SLOW_SECONDS 1.0 // shorter intervals tell nothing
typedef struct pace {    // of a rank
    double own;          // seconds, since the training began
    int place;
} pace;
typedef struct pace_table { // of all ranks that train, on the first one
    int ranks, step;
    double at; // when they were compared, after so many steps
    pace *last, *now;
    double *peers; // of one rank
    char *named;
} pace_table;

static void close_paces(pace_table *p) {
    free(p->last);
    free(p->peers);
    free(p->named);
    memset(p, 0, sizeof *p);
}
static int open_paces(pace_table *p, int ranks, int step, double at) { // 0: no memory
    close_paces(p);
    p->last = (pace *)calloc(2 * (size_t)ranks, sizeof *p->last);
    p->peers = (double *)calloc((size_t)ranks, sizeof *p->peers);
    p->named = (char *)calloc((size_t)ranks, 1);
    if (!p->last || !p->peers || !p->named) return close_paces(p), 0;
    p->now = p->last + ranks;
    p->ranks = ranks;
    p->step = step;
    p->at = at;
    return 1;
}
// How many times as long as the median of its peers rank r has computed; of two in the middle the longer one
// counts. 0: it has no peers.
static double times_the_median(const pace_table *p, int r) {
    int peers = 0;
    for (int i = 0; i < p->ranks; i++)
        if (i != r && p->now[i].place == p->now[r].place) p->peers[peers++] = p->now[i].own - p->last[i].own;
    const double middle = peers ? median(p->peers, peers) : 0;
    return middle > 0 ? (p->now[r].own - p->last[r].own) / middle : 0;
}
// How what is said of rank r changes. 1: it is slow; -1: no more; 0: not.
static int slow_change(pace_table *p, int r, double times) {
    const int slow = times >= (p->named[r] ? SLOW_UNTIL : SLOW_FROM), change = slow - p->named[r];
    p->named[r] = (char)slow;
    return change;
}
