// 02_heat.c - the heat equation on a plate that is cut into blocks, one for each rank.
//
//     $ cc -O2 -I. examples/02_heat.c -o heat -pthread -lm
//     $ PAR_RANKS=4 ./heat
//     +%#####@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@#####%+
//     -+*%%%####################################%%%*+-
//     :=++**%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%**++=:
//     :-=+++******%%%%%%%%%%%%%%%%%%%%%%%%******+++=-:
//     ::-==++++******************************++++==-::
//     .:--===++++++++++++++++++++++++++++++++++===--:.
//     .::---=========++++++++++++++++++=========---::.
//     ..::------============================------::..
//     ..:::::----------------------------------:::::..
//     ....::::::::::::----------------::::::::::::....
//     .......::::::::::::::::::::::::::::::::::.......
//     ................................................
//     after 400 sweeps a point changes by at most 0.002204808
//     $ PAR_RANKS=1 ./heat | tail -n 1
//     after 400 sweeps a point changes by at most 0.002204808
//
// A point becomes the mean of its four neighbors, again and again. At the edge of a block some of these
// belong to other ranks. So each rank keeps a halo around its block, one point wide, and before every sweep
// the ranks exchange edges. A mesh says who has which block; par_neighbor_exchange does the rest.
#define PAR_IMPLEMENTATION
#include "par.h"

enum { HEIGHT = 12, WIDTH = 48, SWEEPS = 400 }; // of the whole plate

static par_comm *world;

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)

static double now[HEIGHT + 2][WIDTH + 2], next[HEIGHT + 2][WIDTH + 2]; // the block starts at [1][1]
static int rows, columns, top, left; // of this rank's block; where it lies in the plate

// The rank that is one step further along an axis of the mesh, or -1 beyond its end.
static int neighbor(par_mesh *mesh, const char *axis, int step) {
    par_comm *line; // the ranks on this axis through this rank
    MUST(par_mesh_comm(mesh, axis, &line));
    return par_world_rank(line, par_rank(line) + step);
}

// The block's edges, packed side by side: above, below, left, right. What arrives has the same order.
// Where the plate ends there is no neighbor: then halo keeps what main has put there.
enum { BELOW = WIDTH, LEFT = 2 * WIDTH, RIGHT = 2 * WIDTH + HEIGHT, ALL = 2 * WIDTH + 2 * HEIGHT };
static double edges[ALL], halo[ALL];

static void exchange(par_neighbors *neighbors) {
    const size_t counts[4] = {(size_t)columns, (size_t)columns, (size_t)rows, (size_t)rows};
    const size_t places[4] = {0, BELOW, LEFT, RIGHT};
    for (int j = 0; j < columns; j++) {
        edges[j] = now[1][j + 1];
        edges[BELOW + j] = now[rows][j + 1];
    }
    for (int i = 0; i < rows; i++) {
        edges[LEFT + i] = now[i + 1][1];
        edges[RIGHT + i] = now[i + 1][columns];
    }
    MUST(par_neighbor_exchange(edges, counts, places, halo, counts, places, PAR_F64, neighbors));
    for (int j = 0; j < columns; j++) {
        now[0][j + 1] = halo[j];
        now[rows + 1][j + 1] = halo[BELOW + j];
    }
    for (int i = 0; i < rows; i++) {
        now[i + 1][0] = halo[LEFT + i];
        now[i + 1][columns + 1] = halo[RIGHT + i];
    }
}

static double sweep(void) { // returns the largest change of a point
    double most = 0;
    for (int i = 1; i <= rows; i++)
        for (int j = 1; j <= columns; j++) {
            next[i][j] = 0.25 * (now[i - 1][j] + now[i + 1][j] + now[i][j - 1] + now[i][j + 1]);
            if (fabs(next[i][j] - now[i][j]) > most) most = fabs(next[i][j] - now[i][j]);
        }
    for (int i = 1; i <= rows; i++)
        for (int j = 1; j <= columns; j++) now[i][j] = next[i][j];
    return most;
}

static void draw(void) { // each rank fills in its own block; a maximum lays them together
    uint8_t mine[HEIGHT][WIDTH] = {{0}}, all[HEIGHT][WIDTH];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const int tone = (int)(now[i + 1][j + 1] * 0.09); // of 0 to 100
            mine[top + i][left + j] = (uint8_t) ".:-=+*%#@"[tone < 0 ? 0 : tone > 8 ? 8 : tone];
        }
    MUST(par_reduce(mine, all, HEIGHT * WIDTH, PAR_U8, PAR_MAX, 0, world));
    for (int i = 0; i < HEIGHT && par_rank(world) == 0; i++) printf("%.*s\n", WIDTH, (const char *)all[i]);
}

int main(void) {
    if (par_open(NULL, &world)) return 1;
    par_mesh *mesh; // 4 ranks: 2 x 2 blocks
    MUST(par_mesh_open(world, par_size(world) % 2 ? "down=1 across=-1" : "down=2 across=-1", &mesh));
    const int peers[4] = {neighbor(mesh, "down", -1), neighbor(mesh, "down", 1), neighbor(mesh, "across", -1),
                          neighbor(mesh, "across", 1)};
    par_neighbors *neighbors;
    MUST(par_neighbors_open(world, 4, peers, NULL, &neighbors)); // NULL: what I send to, I receive from

    const int y = par_mesh_index(mesh, "down"), high = par_mesh_size(mesh, "down");
    const int x = par_mesh_index(mesh, "across"), wide = par_mesh_size(mesh, "across");
    top = HEIGHT * y / high;
    rows = HEIGHT * (y + 1) / high - top;
    left = WIDTH * x / wide;
    columns = WIDTH * (x + 1) / wide - left;
    for (int j = 0; j < columns && top == 0; j++) halo[j] = 100; // the plate is hot above, and cold elsewhere

    double most = 0;
    for (int s = 0; s < SWEEPS; s++) {
        exchange(neighbors);
        most = sweep();
    }
    MUST(par_all_reduce(&most, &most, 1, PAR_F64, PAR_MAX, world)); // a maximum does not depend on the ranks
    draw();
    if (par_rank(world) == 0) printf("after %d sweeps a point changes by at most %.9f\n", SWEEPS, most);
    MUST(par_neighbors_close(neighbors));
    MUST(par_mesh_close(mesh));
    return par_close(world) != PAR_OK || fflush(stdout);
}
