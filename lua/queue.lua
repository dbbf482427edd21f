-- Stands in front of the scripts that know the queue of a lock, of any kind.
--
-- The queue is a sorted set of waiting owners: the tickets. The score of an owner holds the
-- owner's place, claim and way to hear:
--
--   score = (place · 8192 + claim) · 4 + how
--
-- Places grow from each owner to the next. In the queue of a read/write lock the place of a
-- reader is odd, and the place of a writer even. The claim is the lease, in milliseconds, with
-- which the lock is granted to the owner. An owner hears
--
--   0  not at all, or not yet: the owner asks again by a timer
--   1  by PUBLISH: the server knows who is subscribed
--   2  by PUBLISH in a cluster: the client may be subscribed on any of its nodes
--   3  by SPUBLISH: the node knows who is subscribed
--
-- The first member may be no ticket, but the record of the newest grant by the queue, until that
-- owner releases the lock. If the lock is free and the record still there, the grant has lapsed. If
-- no ticket is left, the key expires after one claim: a late request of a caller who gave up leaves
-- nothing for longer. The record is
--
--   '!' .. owner          with score 0, of a plain lock
--   '!' .. owner .. ':'   with score 5, or 9, of a read/write lock: see note. An older version of this
--                         library knows no record there: it finds the ticket of a client that
--                         nobody listens for, takes it out, and goes on to the next
--
-- Names, of a plain lock and of a read/write lock:
--
--   rlock_queue:{name}              the queue
--   rlock_rwqueue:{name}
--   redisson_lock__channel:{name}   Redisson's waiters, and ours while a foreign owner holds
--   redisson_rwlock:{name}          the lock. Our messages are -0 and +1, which Redisson reads
--                                   as 0 and 1; ours can tell them apart
--   rlock_channel:{name}:client     the waiters of one client of ours, a line for each owner:
--   rlock_rwchannel:{name}:client   "owner time claim token spare follower…"  has the lock,
--                                   and so many tokens more are reserved
--                                   "owner"  may ask, "*"  all ask: places may be lost

-- spare is how many tokens are reserved for a grant by a message, for hand-offs in memory.
local spare = 1024

-- keep is how long a queue is kept after the last request, in milliseconds: several times the
-- longest pause of a waiter between two requests.
local keep = 60000

local function channel(queue)
    return (string.gsub(queue, 'queue', 'channel', 1))
end

local function client(owner)
    return string.match(owner, '^!?([^:]*):')
end

-- foreigners tells whether somebody listens on the unlock channel: a client that cannot queue.
-- If so, foreigners announces the release there; also if only the announcement can tell.
local function foreigners(unlocks, commands, message)
    local count = 0
    for command in string.gmatch(commands, '%a+') do
        local reply = redis.pcall('pubsub', command == 'SPUBLISH' and 'shardnumsub' or 'numsub', unlocks)
        if reply.err then -- is not permitted
            local heard = announce(commands, unlocks, message)
            return type(heard) == 'number' and heard > 0
        end
        count = count + reply[2]
    end
    if count > 0 then
        announce(commands, unlocks, message)
    end
    return count > 0
end

-- foreign tells whether an owner is not of this library, with names like <xid>:<n>: the
-- owner's release will not pass the lock on.
local function foreign(owner)
    return not string.find(owner, '^' .. string.rep('%w', 20) .. ':%d+$')
end

-- absent tells whether the server knows that a client, hearing in the way how, is not subscribed
-- here. The server is asked before the message; the number of receivers would come too late:
--
--   master M, demoted a moment ago    new master N
--   client A is subscribed to M
--                                     a message to A: 0 receivers, passed over
--   M, a replica now, gets the
--   message from N: A hears it        and yet A has no grant
local function absent(ours, how)
    local found = how ~= 0 and how ~= 2 and redis.pcall('pubsub', how == 3 and 'shardnumsub' or 'numsub', ours)
    return found and found[2] == 0 -- nil if it may not be asked
end

-- tell sends a message to a client, in the way how. It returns true; false if the client is
-- absent: then nobody gets the message; or an error, if the server refuses the message.
local function tell(queue, commands, home, how, message)
    local ours = channel(queue) .. ':' .. home
    if how == 0 then -- it may hear by now; if not, or if it cannot be told, it asks
        announce(commands, ours, message)
        return true
    elseif absent(ours, how) then
        return false
    end
    local heard = redis.pcall(how == 3 and 'spublish' or 'publish', ours, message)
    return type(heard) ~= 'table' or heard
end

-- first returns the first ticket with its score, nil without a ticket, or if the key is no queue; and
-- the record, if there is one.
local function first(queue)
    local found = redis.pcall('zrange', queue, 0, 1, 'withscores')
    if found[1] and string.sub(found[1], 1, 1) == '!' then
        return found[3], tonumber(found[4]), found[1]
    end
    return found[1], tonumber(found[2])
end

-- tickets returns about how many tickets a queue has; nil, and the answer to give, if the key is no
-- queue, or the server refuses to look.
local function tickets(queue)
    local length = redis.pcall('zcard', queue)
    if type(length) == 'table' then
        local what = redis.call('type', queue).ok
        return nil, what ~= 'zset' and what ~= 'none' and {-1, queue, what} or length
    end
    return length
end

-- stand gives an owner the last place, or keeps the place of its ticket. It returns the score, and
-- 1 for a new ticket; 0 and -1 if the server has no memory for a ticket. Any other refusal, such
-- as a replica's, is returned unchanged: a replica must not tell the caller that the lock is
-- held.
-- A ticket that hears is never set back to 0: the request may be an old one. If the request is
-- new, a message reaches nobody, and the owner is passed over. shared is 1 for a reader, 0 for a
-- writer, and nil for the owner of a plain lock.
local function stand(queue, owner, claim, how, shared)
    local old, place, new = redis.call('zscore', queue, owner), 0, 0
    if old then
        place = math.floor(old / 32768)
        how = how == '0' and old % 4 or how
    else
        local last = redis.call('zrange', queue, -1, -1, 'withscores')
        place, new = math.floor((tonumber(last[2]) or 0) / 32768) + 1, 1
        if shared and place % 2 ~= shared then
            place = place + 1
        end
    end
    local score = place * 32768 + claim * 4 + how
    if tonumber(old) ~= score then
        if old then -- first, as a server out of memory would refuse the other one otherwise
            redis.call('pexpire', queue, keep) -- not ZREM: a node whose slot moves makes no queue anew
        end
        local added = redis.pcall('zadd', queue, string.format('%.0f', score), owner)
        if type(added) == 'table' then
            return string.find(added.err, 'OOM ', 1, true) and 0 or added, -1
        end
    else -- there is no such member; a replica refuses to look for it
        local kept = redis.pcall('zrem', queue, '')
        if type(kept) == 'table' then
            return kept, -1
        end
    end
    if redis.call('pttl', queue) < keep / 2 then
        redis.call('pexpire', queue, keep)
    end
    return score, new
end

-- wake makes the first owner behind a place ask, if the owner is of another client.
local function wake(queue, commands, place, home)
    local next = redis.call('zrangebyscore', queue, '(' .. string.format('%.0f', place), '+inf', 'withscores', 'limit', 0, 1)
    if next[1] and client(next[1]) ~= home then
        tell(queue, commands, client(next[1]), next[2] % 4, next[1])
    end
end

-- patience is the claim of a ticket after a lapse, in milliseconds, until its client has
-- asked again; called is how many tickets a lapse may call.
local patience, called = 400, 128

-- settle ends the record of the newest grant by the queue, as the lock is free. If the record's owner is not of the client
-- that asks or releases now, the grant has lapsed: that client is dead, or deaf, and loses its
-- tickets. One that stands still looks like one that waits, and seldom stands alone, so each
-- client in front is called: asked to ask again, and given no more than patience until then.
-- The next lapse takes the tickets of all clients that have not answered the call. Who
-- does not hear is not called, and asks at its own times.
--
--   a, b, c have stopped, d waits   a:1 b:1 c:1 d:1
--   the grant to a:1 lapses         b:1 is granted the lock for patience; b, c, d are called
--   d:1 asks                        its claim is a full one again
--   the grant to b:1 lapses         c:1 goes with b:1, and d:1 has the lock
local function settle(queue, commands, asker)
    local _, _, record = first(queue)
    if not record then
        return
    end
    redis.call('zrem', queue, record)
    local lapsed, home = client(record), client(asker)
    if lapsed == home then
        return
    end
    local tickets = redis.pcall('zrange', queue, 0, -1, 'withscores') -- fails if it is gone, and its slot moves
    local function claimOf(i) return math.floor(tickets[i + 1] / 4) % 8192 end
    local lives, told = {[home] = true}, {}
    for i = 1, #tickets, 2 do
        if claimOf(i) ~= patience then
            lives[client(tickets[i])] = true
        end
    end
    for i = 1, #tickets, 2 do
        local other = client(tickets[i])
        if other == lapsed or not lives[other] then
            redis.call('zrem', queue, tickets[i])
            told[other] = true
        elseif other ~= home and i < 2 * called and claimOf(i) > patience and tickets[i + 1] % 4 ~= 0 then
            redis.call('zadd', queue, string.format('%.0f', tickets[i + 1] - (claimOf(i) - patience) * 4), tickets[i])
            told[other] = true
        end
    end
    for other in pairs(told) do
        announce(commands, channel(queue) .. ':' .. other, '*')
    end
end

-- refused is the answer to an owner that does not get the lock, with its place in the queue, which is new
-- or not. The holder's lease lasts for ttl: see ask.lua.
local function refused(queue, commands, owner, place, new, length, how, ttl, holder)
    local before = place > 0 and redis.call('zcount', queue, 32768, '(' .. string.format('%.0f', place)) or 1
    if before == 0 and foreign(holder) then -- two of ours watch it, in case one dies
        wake(queue, commands, place, client(owner))
    end
    local deaf = how == '1' and absent(channel(queue) .. ':' .. client(owner), 1)
    return {0, ttl, holder, tonumber(clock()), before, new, length, deaf and 1 or 0}
end
