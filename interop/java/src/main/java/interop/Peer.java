package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Redisson under remote control. Each line of standard input is a request, each line of standard
 * output an answer; the process ends with its input.
 *
 * <pre>
 * request   tag actor command arguments…
 * answer    tag begun ended ok value…
 *           tag begun ended failed class message…
 * </pre>
 *
 * An actor is a thread of that name, which Redisson takes for an owner: it executes its requests one
 * after the other, and all actors at the same time. Times are microseconds since 1970 around the
 * work, on the clock that the machine's other processes see as well; durations are milliseconds.
 * The package comment of the Go side lists the commands.
 */
public final class Peer {
    /** What a writer counts for among those inside, and more than all readers. */
    private static final long ALONE = 1000;

    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> actors = new ConcurrentHashMap<>();
    private final Map<String, Thread> threads = new ConcurrentHashMap<>(); // of the actors
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            peer.actors.computeIfAbsent(words[1], peer::actor).execute(() -> peer.answer(words));
        }
        Runtime.getRuntime().halt(0); // waiting threads, and held locks, are left as a crash leaves them
    }

    private ExecutorService actor(String name) {
        return Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work, name);
            threads.put(name, thread);
            return thread;
        });
    }

    /**
     * Tells whether an actor waits for a message at Redisson's semaphore. A message that comes before
     * wakes others, and not this one: Redisson releases as many permits as there are threads in line.
     */
    private boolean asleep(String actor) {
        Thread thread = threads.get(actor);
        if (thread == null || thread.getState() != Thread.State.TIMED_WAITING && thread.getState() != Thread.State.WAITING) {
            return false;
        }
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals("java.util.concurrent.Semaphore")) {
                return true;
            }
        }
        return false;
    }

    private void answer(String[] words) {
        long begun = now();
        String result;
        try {
            result = "ok " + execute(words[2], new Arguments(words));
        } catch (Throwable e) {
            result = "failed " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
        }
        long ended = now();
        synchronized (out) {
            out.println(words[0] + " " + begun + " " + ended + " " + result);
            out.flush();
        }
    }

    private Object execute(String command, Arguments args) throws InterruptedException {
        switch (command) {
            case "open":
                return open(args.next(), args.next(), args.next(), args.nextLong());
            case "close":
                clients.remove(args.next()).shutdown();
                return "";
            case "asleep":
                return asleep(args.next());
        }
        RedissonClient client = clients.get(args.next());
        String kind = args.next();
        String name = args.next();
        RLock lock = lock(client, kind, name);
        switch (command) {
            case "lock":
                return acquire(lock, args.nextLong());
            case "tryLock": {
                long wait = args.nextLong();
                return wait == 0 ? lock.tryLock() : lock.tryLock(wait, TimeUnit.MILLISECONDS);
            }
            case "unlock":
                lock.unlock();
                return "";
            case "forceUnlock":
                return lock.forceUnlock();
            case "holdCount":
                return lock.getHoldCount();
            case "held":
                return lock.isHeldByCurrentThread();
            case "ttl":
                return lock.remainTimeToLive();
            case "holds": {
                StringBuilder all = new StringBuilder();
                client.<String, String>getMap(name, StringCodec.INSTANCE).readAllMap()
                    .forEach((owner, count) -> all.append(owner).append('=').append(count).append(' '));
                return all;
            }
            case "work":
                return work(client, lock, kind, name, args.nextLong(), args.nextLong(), args.next());
            default:
                throw new IllegalArgumentException("no command " + command);
        }
    }

    private String open(String client, String topology, String address, long watchdog) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdog);
        switch (topology) {
            case "standalone":
                config.useSingleServer().setAddress("redis://" + address)
                    .setSubscriptionTimeout(30_000); // eight JVMs that compile leave little of two cores
                break;
            case "standalone-small":
                config.setThreads(2).setNettyThreads(2);
                config.useSingleServer().setAddress("redis://" + address)
                    .setConnectionMinimumIdleSize(1).setConnectionPoolSize(2)
                    .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(2);
                break;
            case "cluster":
                config.useClusterServers().addNodeAddress("redis://" + address);
                break;
            case "cluster-off":
                config.useClusterServers().addNodeAddress("redis://" + address)
                    .setShardedSubscriptionMode(ShardedSubscriptionMode.OFF);
                break;
            default:
                throw new IllegalArgumentException("no topology " + topology);
        }
        clients.put(client, Redisson.create(config));
        return clients.get(client).getId();
    }

    private static RLock lock(RedissonClient client, String kind, String name) {
        switch (kind) {
            case "plain":
                return client.getLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "spin":
                return client.getSpinLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    /** Waits for the lock; lease 0 leaves it to the watchdog. Returns the token, 0 if there is none. */
    private static long acquire(RLock lock, long lease) {
        if (lock instanceof RFencedLock fenced) {
            return lease == 0 ? fenced.lockAndGetToken() : fenced.lockAndGetToken(lease, TimeUnit.MILLISECONDS);
        }
        if (lease == 0) {
            lock.lock();
        } else {
            lock.lock(lease, TimeUnit.MILLISECONDS);
        }
        return 0;
    }

    /**
     * Goes through so many critical sections, or as many as fit in so many milliseconds. Returns what
     * it saw of others inside, then for each section when it was asked for, acquired, given back and
     * done, its place in the order and its token. In a checked section a reader reads the counter
     * behind the lock, and anybody else raises it in a way that loses updates unless it is alone. In
     * one of so many microseconds nothing else happens.
     */
    private static String work(RedissonClient client, RLock lock, String kind, String name, long most, long millis,
            String mode) {
        RAtomicLong inside = client.getAtomicLong(name + ":inside");
        RBucket<String> counter = client.getBucket(name + ":counter", StringCodec.INSTANCE);
        boolean checked = mode.equals("checked");
        long pause = checked || mode.equals("empty") ? 0 : TimeUnit.MICROSECONDS.toNanos(Long.parseLong(mode));
        boolean shared = kind.equals("read");
        long weight = shared ? 1 : ALONE;
        long bearable = shared ? ALONE - 1 : 0;
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        long violations = 0;
        List<long[]> sections = new ArrayList<>();
        while (sections.size() < most && System.nanoTime() < end) {
            long asked = now();
            long token = acquire(lock, 0);
            long acquired = now();
            long place = 0;
            if (checked) {
                if (inside.addAndGet(weight) - weight > bearable) {
                    violations++;
                }
                String before = counter.get();
                place = before == null ? 0 : Long.parseLong(before);
                if (!shared) {
                    place++;
                    counter.set(Long.toString(place));
                }
                if (inside.addAndGet(-weight) > bearable) {
                    violations++;
                }
            }
            if (pause > 0) {
                LockSupport.parkNanos(pause);
            }
            long released = now();
            lock.unlock();
            sections.add(new long[] {asked, acquired, released, now(), place, token});
        }
        StringBuilder all = new StringBuilder(Long.toString(violations));
        for (long[] section : sections) {
            char separator = ' ';
            for (long value : section) {
                all.append(separator).append(value);
                separator = ':';
            }
        }
        return all.toString();
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    /** The words of a request behind tag, actor and command. */
    private static final class Arguments {
        private final String[] words;
        private int at = 3;

        Arguments(String[] words) {
            this.words = words;
        }

        String next() {
            return words[at++];
        }

        long nextLong() {
            return Long.parseLong(next());
        }
    }
}
