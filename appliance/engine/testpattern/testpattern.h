/* The testpattern engine: deterministic frames that a person can watch, and scripted faults. */
#ifndef RL_ENGINE_TESTPATTERN_H
#define RL_ENGINE_TESTPATTERN_H

struct engine;

/* Its table; static storage. */
const struct engine *testpattern_engine(void);

#endif
