/* Faults on demand for the failure loops: allocation (ours, cJSON's, SQLite's) and every call that
 * SQLite makes to its files, through a VFS over "unix". Call number `at` fails once, or it and all
 * later ones. A "crash" fault copies the state folder as a kill at that very call would leave it.
 * Syncs that do not fail are skipped: these tests are about order and atomicity, not the disk. */
#ifndef TEST_TASK_FAULTS_H
#define TEST_TASK_FAULTS_H

#include "world.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_MALLOC,        /* malloc, calloc, realloc of reeld and cJSON */
    FAULT_SQLITE_MALLOC, /* SQLite's */
    FAULT_READ,
    FAULT_WRITE,       /* an I/O error, nothing written */
    FAULT_WRITE_SHORT, /* an I/O error after half the bytes */
    FAULT_WRITE_FULL,  /* no space */
    FAULT_TRUNCATE,
    FAULT_SYNC,  /* fatal by design: what is on the disk is then unknown */
    FAULT_CRASH, /* a kill at a write, truncate or sync */
    FAULT_KINDS
};

static const char *const fault_names[FAULT_KINDS] = {
    "none",        "malloc",    "sqlite malloc", "read", "write",
    "short write", "disk full", "truncate",      "sync", "crash"};

static struct {
    enum fault_kind kind;
    bool sticky;      /* all calls from `at` on */
    int at;           /* 1-based */
    const char *from; /* crash and sync: the state folder, and where its image goes */
    const char *to;
    atomic_int calls;
    atomic_bool hit;
} fault;

static inline void fault_arm(enum fault_kind kind, int at, bool sticky)
{
    fault.at = at;
    fault.sticky = sticky;
    atomic_store(&fault.calls, 0);
    atomic_store(&fault.hit, false);
    fault.kind = kind; /* nothing else runs: the operation under test begins after this */
}

/* Was the call reached? */
static inline bool fault_disarm(void)
{
    fault.kind = FAULT_NONE;
    return atomic_load(&fault.hit);
}

static inline bool fault_now(enum fault_kind kind)
{
    if (fault.kind != kind)
        return false;
    int call = atomic_fetch_add(&fault.calls, 1) + 1;
    bool now = call == fault.at || (fault.sticky && call > fault.at);
    if (now)
        atomic_store(&fault.hit, true);
    return now;
}

/* The next call to fail: each of the first `dense`, then every `step`-th; REELD_TEST_LONG tries
 * all. ThreadSanitizer is slow and looks for something else: there a sample is enough. */
static inline int fault_next(int at, int dense, int step)
{
#if defined(__SANITIZE_THREAD__)
    dense = dense < 5 ? dense : 5;
    step *= 5;
#endif
    return at + (getenv("REELD_TEST_LONG") || at < dense ? 1 : step);
}

/* ---- allocation ---- */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    return fault_now(FAULT_MALLOC) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fault_now(FAULT_MALLOC) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fault_now(FAULT_MALLOC) ? NULL : __real_realloc(old, size);
}

/* Syncs outside SQLite. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

static void *json_malloc(size_t size)
{
    return malloc(size); /* the wrapped one */
}

static sqlite3_mem_methods sqlite_mem;

static void *sqlite_malloc(int size)
{
    return fault_now(FAULT_SQLITE_MALLOC) ? NULL : sqlite_mem.xMalloc(size);
}

static void *sqlite_realloc(void *old, int size)
{
    return fault_now(FAULT_SQLITE_MALLOC) ? NULL : sqlite_mem.xRealloc(old, size);
}

/* ---- files ---- */

struct fault_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
    bool watched;       /* database, WAL, journal: not temporary files */
};

static sqlite3_vfs *real_vfs;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct fault_file *)file)->real;
}

static inline void copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    char from[160], to[160];
    static char bytes[1 << 16];
    (void)snprintf(from, sizeof from, "%s/%s", from_dir, name);
    (void)snprintf(to, sizeof to, "%s/%s", to_dir, name);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return; /* not every file exists yet */
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n;
    while (out >= 0 && (n = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)n) != n)
            print_error("the image of the crash is not whole\n");
    (void)close(in);
    (void)close(out);
}

/* What a kill leaves: the files as they are now. The -shm file is remade from the WAL. */
static inline void take_image(void)
{
    copy_file(fault.from, fault.to, "reeld.db");
    copy_file(fault.from, fault.to, "reeld.db-wal");
    copy_file(fault.from, fault.to, "owner.key");
    copy_file(fault.from, fault.to, "callback.secret");
}

static inline void maybe_crash(void)
{
    if (fault_now(FAULT_CRASH))
        take_image();
}

static int fault_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int fault_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    if (((struct fault_file *)file)->watched && fault_now(FAULT_READ))
        return SQLITE_IOERR_READ;
    return real_of(file)->pMethods->xRead(real_of(file), bytes, len, at);
}

static int fault_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    if (((struct fault_file *)file)->watched) {
        maybe_crash();
        if (fault_now(FAULT_WRITE))
            return SQLITE_IOERR_WRITE;
        if (fault_now(FAULT_WRITE_FULL))
            return SQLITE_FULL;
        if (fault_now(FAULT_WRITE_SHORT)) {
            (void)real_of(file)->pMethods->xWrite(real_of(file), bytes, len / 2, at);
            return SQLITE_IOERR_WRITE;
        }
    }
    return real_of(file)->pMethods->xWrite(real_of(file), bytes, len, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    if (((struct fault_file *)file)->watched) {
        maybe_crash();
        if (fault_now(FAULT_TRUNCATE))
            return SQLITE_IOERR_TRUNCATE;
    }
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int fault_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    if (!((struct fault_file *)file)->watched)
        return SQLITE_OK;
    maybe_crash();
    if (!fault_now(FAULT_SYNC))
        return SQLITE_OK;
    take_image(); /* the process ends here */
    return SQLITE_IOERR_FSYNC;
}

static int fault_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), ret_size);
}

static int fault_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int fault_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int fault_reserved(sqlite3_file *file, int *ret_held)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret_held);
}

static int fault_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int fault_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int fault_device(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int fault_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret_p)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, ret_p);
}

static int fault_shm_lock(sqlite3_file *file, int at, int n, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), at, n, flags);
}

static void fault_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int fault_shm_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods fault_methods = {.iVersion = 2,
                                                 .xClose = fault_close,
                                                 .xRead = fault_read,
                                                 .xWrite = fault_write,
                                                 .xTruncate = fault_truncate,
                                                 .xSync = fault_sync,
                                                 .xFileSize = fault_size,
                                                 .xLock = fault_lock,
                                                 .xUnlock = fault_unlock,
                                                 .xCheckReservedLock = fault_reserved,
                                                 .xFileControl = fault_control,
                                                 .xSectorSize = fault_sector,
                                                 .xDeviceCharacteristics = fault_device,
                                                 .xShmMap = fault_shm_map,
                                                 .xShmLock = fault_shm_lock,
                                                 .xShmBarrier = fault_shm_barrier,
                                                 .xShmUnmap = fault_shm_unmap};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *ret_flags)
{
    (void)vfs;
    struct fault_file *f = (struct fault_file *)file;
    f->real = (sqlite3_file *)(f + 1);
    f->watched = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL);
    int rc = real_vfs->xOpen(real_vfs, name, f->real, flags, ret_flags);
    f->base.pMethods = f->real->pMethods ? &fault_methods : NULL;
    return rc;
}

/* Once, before anything uses SQLite. */
static inline void fault_install(void)
{
    static sqlite3_vfs vfs;
    static sqlite3_mem_methods mem;
    cJSON_Hooks hooks = {json_malloc, free};
    cJSON_InitHooks(&hooks);
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_mem) != SQLITE_OK)
        fail_msg("SQLite runs already");
    mem = sqlite_mem;
    mem.xMalloc = sqlite_malloc;
    mem.xRealloc = sqlite_realloc;
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &mem);
    real_vfs = sqlite3_vfs_find("unix");
    vfs = *real_vfs;
    vfs.zName = "fault";
    vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
    vfs.xOpen = fault_open;
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK)
        fail_msg("the VFS is refused");
}

#endif
