/*
 * What leaseinit tells the leasekeep above it, if there is one: leasekeep makes leaseinit's stdin
 * one end of a stream socket pair. (No other launcher gives a socket, so no option is needed, and
 * a descriptor number of its own would have to survive bwrap.)
 *
 *   READY              leaseinit runs: the sandbox was set up completely
 *   ENDED code signal  how the agent ended, exactly; bwrap folds both into one exit status
 *
 * The end of the socket tells leaseinit that leasekeep is gone: it leaves at once.
 */
#ifndef INIT_READY_H
#define INIT_READY_H

enum init_ready {
    INIT_READY = 'r',
    INIT_ENDED = 'e', /* 2 bytes follow */
};

#define INIT_ENDED_SIZE 3u

#endif
