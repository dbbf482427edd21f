-- Stands in front of the scripts that grant with a fencing token. Tokens are decimal
-- text: from 2^53 on, Lua's numbers are not exact.

-- lead is how far tokens may be ahead of the server's clock, in microseconds, by what
-- is reserved: less than it takes to lose the counter and have another server in its
-- place. What is not reserved is counted on in any case.
local lead = 10000

-- life is how long a counter outlives its newest token, in milliseconds: 30 days.
local life = 2592000000

-- clock returns the server's time in microseconds, as text.
local function clock()
    local time = redis.call('time')
    return time[1] .. string.format('%06d', time[2])
end

local function less(a, b)
    return #a < #b or #a == #b and a < b
end

-- number returns a token as what a reply holds at the lowest price.
local function number(token)
    return less(token, '9007199254740992') and tonumber(token) or token
end

-- text undoes that.
local function text(token)
    return type(token) == 'number' and string.format('%.0f', token) or token
end

-- newest returns the newest token of a counter, '0' before the first, and nil if
-- the key cannot be counted on.
local function newest(counter)
    local text = redis.pcall('get', counter) or '0'
    if type(text) == 'table' or not string.find(text, '^%d+$') or not less(text, '9223372036854775807') then
        return nil
    end
    return text
end

-- strange is the reply of a script whose counter cannot be counted on.
local function strange(counter)
    local what = redis.call('type', counter).ok
    if what == 'none' then
        redis.call('get', counter) -- is not allowed: fails again
    end
    return {-1, counter, what}
end

-- count sets a counter, and lets it outlive its newest token for as long as it has to.
-- One without TTL was made by Redisson, which counts on: it stays so.
local function count(counter, token, ttl)
    if ttl == -1 then
        redis.call('set', counter, token)
    else
        redis.call('set', counter, token, 'px', life)
    end
end

-- following counts on from the newest token. It returns the token after it, and how
-- many of the spare ones behind that it has reserved: no more than keeps the counter
-- near the clock.
--
-- The server's clock carries the order of tokens over a lost counter, the counter
-- over a clock that was set back.
local function following(counter, newest, spare)
    local now, ttl = clock(), redis.call('pttl', counter)
    spare = tonumber(spare or 0)
    if less(newest, now) then
        spare = math.min(spare, lead)
        count(counter, now, ttl)
        if spare > 0 then
            redis.call('incrby', counter, spare)
        end
        return now, spare
    end
    spare = math.max(math.min(spare, lead - (tonumber(newest) - tonumber(now))), 0)
    redis.call('incrby', counter, 1)
    local token = redis.call('get', counter)
    if spare > 0 then
        redis.call('incrby', counter, spare)
    end
    if ttl ~= -1 then
        redis.call('pexpire', counter, life)
    end
    return token, spare
end

-- restore gives back tokens that were reserved and not used: the newest one is used
-- again, if none was counted since.
local function restore(counter, used, reserved)
    if redis.pcall('get', counter) == reserved then
        count(counter, used, redis.call('pttl', counter))
    end
end
-- Stands in front of the scripts that announce something.
--
-- announce sends a message by PUBLISH, by SPUBLISH, or by both in this order ("PUBLISH
-- SPUBLISH"). It returns how many connections the last permitted command has reached, or why
-- the server permits none.
--
-- After +1, which a writer of a read/write lock leaves with, it sends -0. Redisson reads them as 1 and 0. A 1 wakes
-- all threads that wait in a client, but is lost to one that has been refused and does not wait yet. A 0 wakes one
-- thread, and stays for the next if none waits:
--
--   Java asks, and is refused: 30 s are left
--                                              the writer leaves: 1 wakes nobody, 0 stays
--   Java begins to wait, for 30 s at most      0: Java asks again at once
local function announce(commands, channel, message)
    local receivers
    if not string.find(commands, ' ', 1, true) then -- most often
        receivers = redis.pcall(commands, channel, message)
    else
        for command in string.gmatch(commands, '%a+') do
            local reply = redis.pcall(command, channel, message)
            if type(receivers) ~= 'number' or type(reply) == 'number' then
                receivers = reply
            end
        end
    end
    if message == '+1' then
        announce(commands, channel, '-0')
    end
    return receivers
end

-- refusal returns why the server permits none; nil if it does.
local function refusal(announced)
    return type(announced) == 'table' and announced.err or nil
end

-- unlocks names the unlock channel of a lock, by Redisson's rule.
local function unlocks(key)
    return 'redisson_lock__channel:' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}')
end
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
-- Stands in front of the scripts of the read/write lock.
--
-- The hash of the lock has a field `mode`, `read` or `write`, and the hold counts of its owners:
-- of reads in the field `owner`, of writes in `owner:write`. Each read hold has a key of
-- its own as well; the TTL of that key is the lease of the hold.

-- hold names the key of an owner's n-th read hold.
local function hold(prefix, owner, n)
    return prefix .. owner .. ':rwlock_timeout:' .. n
end

-- look returns the mode of a lock, 'none' if it is free, and the read and write
-- holds of an owner; in place of the mode, what else the key holds.
local function look(lock, owner)
    local found = redis.pcall('hmget', lock, 'mode', owner)
    local mode = found[1]
    if mode == 'read' then
        return mode, tonumber(found[2]) or 0, 0
    elseif mode == 'write' then
        return mode, tonumber(found[2]) or 0, tonumber(redis.call('hget', lock, owner .. ':write')) or 0
    end
    local what = redis.call('type', lock).ok
    if what == 'hash' then
        if found.err then -- not the key is at fault: fail with that
            redis.call('hmget', lock, 'mode')
        end
        local only = redis.pcall('hlen', lock) == 1 and redis.pcall('hgetall', lock) or {}
        local plain = only[2] and string.find(only[1], ':', 1, true) and string.find(only[2], '^%d+$')
        what = plain and 'plain lock' or 'hash without a mode'
    end
    return what, 0, 0
end

-- stranger tells of a look that it met something else than the lock.
local function stranger(mode)
    return mode ~= 'none' and mode ~= 'read' and mode ~= 'write'
end

-- extend makes the lease of an owner and of each of its read holds at least so
-- long. It had some of those, and shall have others. PEXPIRE first and always: a server
-- out of memory refuses HSET and SET as a script's first write but not as its second.
--
-- It fails if a hold that there was is not here, but on the other node of a cluster whose
-- slot moves: a second one here would be in the way of that. A command with two keys is
-- refused then if this node has one of them only.
local function extend(lock, prefix, owner, had, shared, lease)
    redis.call('pexpire', lock, math.max(redis.call('pttl', lock), lease))
    for n = 1, shared do
        local key = hold(prefix, owner, n)
        local ttl = redis.call('pttl', key)
        if ttl == -2 and n <= had then
            redis.call('exists', lock, key)
        end
        if ttl < lease then
            redis.call('set', key, 1, 'px', lease)
        end
    end
end

-- elsewhere tells of a reply that the key is not here because the slot moves: as most
-- servers put it, or Redis 8.
local function elsewhere(reply)
    return type(reply) == 'table' and (string.find(reply.err, 'non local key', 1, true)
        or string.find(reply.err, 'undeclared keys were accessed during rehashing', 1, true))
end

-- drop deletes a key, unless it is elsewhere: there it ends by itself.
local function drop(key)
    local dropped = redis.pcall('del', key)
    if type(dropped) == 'table' and not elsewhere(dropped) then
        redis.call('del', key) -- fails again
    end
end

-- left returns what is left of a reader's lease, nil if that is over. A reader whose hold
-- is on another node, as the slot moves, counts as one for as long as the lock does.
local function left(lock, prefix, owner, holds)
    local most
    for n = 1, holds do
        local key = hold(prefix, owner, n)
        local ttl = redis.pcall('pttl', key)
        if elsewhere(ttl) or ttl == -2 and elsewhere(redis.pcall('exists', lock, key)) then
            ttl = redis.call('pttl', lock)
        elseif type(ttl) == 'table' then
            ttl = redis.call('pttl', key) -- fails again
        end
        if ttl ~= -2 then
            most = math.max(most or ttl, ttl)
        end
    end
    return most
end

-- writer returns the owner that a lock in the mode 'write' has, nothing if it names none.
local function writer(lock)
    local all = redis.call('hgetall', lock)
    for i = 1, #all, 2 do
        local owner = string.match(all[i], '^(.+):write$')
        if owner then
            return owner
        end
    end
end

-- few readers are looked at one by one; of more, a sample of 8, or 1, and of 64 if all of the sample
-- have died: bound at most, as the server does nothing else meanwhile.
local few, sample, bound = 16, 8, 1024

-- examine looks at fields and values of the hash, and takes out readers whose leases are over:
-- Redisson leaves the fields of readers that died to the TTL of the hash, which others prolong.
-- It returns when the first of the others ends, and whose that is, or a foreign reader if there is
-- such; and when the last ends. nil if there is none. A field that is no reader's stays, and keeps
-- writers out.
local function examine(lock, prefix, all)
    local ttl, whose, last, strange
    for i = 1, #all, 2 do
        local owner, holds = all[i], tonumber(all[i + 1])
        if owner ~= 'mode' then
            local rest
            if holds and string.find(owner, ':', 1, true) then
                rest = left(lock, prefix, owner, holds)
            else
                rest = redis.call('pttl', lock)
            end
            if rest then
                if not ttl or rest < ttl then
                    ttl, whose = rest, owner
                end
                strange = foreign(owner) and owner or strange
                last = math.max(last or rest, rest)
            else
                redis.call('hdel', lock, owner)
            end
        end
    end
    return ttl, strange or whose, last
end

-- alive returns the same of all readers. If there are many, it looks at a sample of so many, as one that
-- lives keeps a writer out, and does not say when the last ends. nil if no reader lives. If too many have
-- died to find out, it returns 1 and '': the writer asks again after a millisecond.
local function alive(lock, prefix, some)
    for _ = 1, bound, 64 do
        local size = redis.call('hlen', lock) - 1
        if size <= few then
            return examine(lock, prefix, redis.call('hgetall', lock))
        end
        local ttl, whose = examine(lock, prefix, redis.call('hrandfield', lock, -some, 'withvalues'))
        if ttl then
            return ttl, whose
        end
        some = 64
    end
    return 1, ''
end
-- Stands in front of the scripts of read/write locks that know the queue, behind queue.lua. A lock
-- is a table: key, queue, prefix, counter, commands, unlocks, and its mode as look has it, or 'none'.

-- sharedOf returns 1 for the ticket of a reader, and 0 for the ticket of a writer.
local function sharedOf(score) return math.floor(score / 32768) % 2 end

-- portion is how many tickets one script serves or prompts at most: the server does nothing
-- else meanwhile.
local portion = 128

-- admits tells whether a reader, or a writer, may have the lock.
local function admits(l, shared) return l.mode == 'none' or l.mode == 'read' and shared == 1 end

-- give grants the lock, which admits the owner. It returns {1, token}, or why not: {-1, key,
-- type}, or an error. A script that fails half-way is not rolled back, so what may fail comes
-- first: a token that nobody gets does no harm, and a hold without its field ends by itself.
local function give(l, owner, shared, lease)
    local token = '0'
    if l.counter then
        token = newest(l.counter)
        if not token then
            return strange(l.counter)
        elseif shared == 0 or token == '0' then -- a reader has the token of the newest writer
            token = following(l.counter, token)
        end
    end
    local field, set = owner .. ':write', nil
    if shared == 1 then
        field, set = owner, redis.pcall('set', hold(l.prefix, owner, 1), 1, 'px', lease)
        if set.err then
            return set
        end
    end
    if l.mode == 'none' then
        set, l.ttl = redis.pcall('hset', l.key, 'mode', shared == 1 and 'read' or 'write', field, 1), -1
    else
        set, l.ttl = redis.pcall('hset', l.key, field, 1), l.ttl or redis.call('pttl', l.key)
    end
    if type(set) == 'table' then
        return set
    end
    if l.ttl < tonumber(lease) then
        local armed = redis.pcall('pexpire', l.key, lease)
        if armed ~= 1 then -- not DEL, to which a user may have lost the right together with PEXPIRE
            redis.call('hdel', l.key, field, l.mode == 'none' and 'mode' or field)
            return armed
        end
        l.ttl = tonumber(lease)
    end
    l.mode, l.holder = shared == 1 and 'read' or 'write', owner
    return {1, number(token)}
end

-- take takes a grant back.
local function take(l, owner, shared)
    if shared == 1 then
        drop(hold(l.prefix, owner, 1))
    end
    redis.call('hdel', l.key, shared == 1 and owner or owner .. ':write')
    if redis.call('hlen', l.key) <= 1 then
        redis.call('del', l.key)
        l.mode = 'none'
    end
end

-- prompt has the first ticket ask for the lock, and with a reader's ticket the readers behind it, up
-- to the first writer, or to so many tickets. The tickets of absent clients go. It returns the lines
-- for the client own; and why the server refuses a message.
local function prompt(queue, commands, own, most)
    local owner, score, record = first(queue)
    local lines, homes, n, ahead, failure = {}, {}, 0, record and 1 or 0, nil
    while owner and n < most and (n == 0 or sharedOf(score) == 1) do
        local home, how = client(owner), score % 4
        if home ~= own and absent(channel(queue) .. ':' .. home, how) then
            redis.call('zrem', queue, owner)
        else
            if not lines[home] then
                homes[#homes + 1] = {home, how}
            end
            lines[home] = lines[home] and lines[home] .. '\n' .. owner or owner
            n = sharedOf(score) == 1 and n + 1 or most
        end
        local next = redis.pcall('zrange', queue, n + ahead, n + ahead, 'withscores') -- fails if it is gone, and its slot moves
        owner, score = next[1], tonumber(next[2])
    end
    for _, h in ipairs(homes) do
        local told = h[1] == own or tell(queue, commands, h[1], h[2], lines[h[1]])
        failure = type(told) == 'table' and told.err or failure
    end
    return own and lines[own], failure
end

-- bare is the score of a record, in place of 5, if the script that granted the lock knew no counter: the owner
-- has no token, and the newest one is that of the writer before. See rwask.lua.
local bare = 9

-- note makes an owner, granted the lock by the queue for claim, the one of the record: see queue.lua. Of a
-- batch it is the last. If another reader of the batch lapses, and this one has left, nobody is called for
-- it: the next grant that lapses does that. A queue without tickets does not outlive the claim.
local function note(queue, record, owner, claim, counter)
    if record then
        redis.call('zrem', queue, record)
    end
    redis.pcall('zadd', queue, counter and 5 or bare, '!' .. owner .. ':') -- fails if the queue is gone, and its slot moves
    if redis.pcall('zcard', queue) == 1 then
        redis.call('pexpire', queue, claim)
    end
end

-- serve grants the lock to the first tickets, for as long as the lock admits them, and sends each
-- client one message.
--
-- A batch of readers begins if nobody holds the lock, or if begins is set: with the reader at the
-- head all readers in the queue get the lock, and pass the writers among them. A lock that readers
-- hold admits only the readers before the first writer. So one batch at most passes a ticket:
--
--   nobody holds the lock   r:1 w:1 r:2   r:1 and r:2 are granted, w:1 stays
--   r:3 asks                w:1 r:3       r:3 waits behind w:1
--   r:1 and r:2 release     r:3           w:1 is granted
--   w:1 releases                          r:3 is granted
--
-- The owner asker is granted without a message, if its turn comes. Clients that are absent lose
-- their tickets. If the server refuses a grant, as it is short of memory, or the slot of the
-- lock moves to another node, the ticket stays and its owner is told to ask. If the server refuses a
-- message, its grants are taken back and the tickets stay. PEXPIRE comes first because a server out
-- of memory refuses a script its first write only.
--
-- serve returns the answer to asker, nil if that waits; the lines for the client own; what the server
-- refuses, as an error or as the answer to an owner; and how many were granted: if that is a
-- portion, more may follow.
local function serve(l, own, asker, lease, begins)
    local queue, i, count, _, _, record = l.queue, 1, 0, first(l.queue)
    local stays = record and 1 or 0
    local found = redis.pcall('zrange', queue, stays, stays, 'withscores')
    local batch, at, mine, failure = begins or l.mode == 'none', nil, nil, nil
    local lines, homes, given, dead = {}, {}, {}, {}
    while found[i] and count < portion do
        local owner, score = found[i], tonumber(found[i + 1])
        local home, how, shared = client(owner), score % 4, sharedOf(score)
        local ear = home .. how -- a ticket that is not heard for is believed
        if owner ~= asker and dead[ear] == nil then
            dead[ear] = home ~= own and absent(channel(queue) .. ':' .. home, how) or false
        end
        local words
        if owner ~= asker and dead[ear] then
            redis.call('zrem', queue, owner)
        elseif not admits(l, shared) then
            if count == 0 or not batch or not admits(l, 1) then
                break
            end
            stays = stays + 1
        else
            if not at then
                redis.call('pexpire', queue, keep)
                at = clock() -- before the grant: until Redis 7.0 time goes on in a script
            end
            local claim = owner == asker and lease or math.floor(score / 4) % 8192
            local answer = give(l, owner, shared, claim)
            if owner == asker then
                mine = answer
                if answer[1] ~= 1 then
                    break
                end
            elseif answer[1] == 1 then
                words = owner .. ' ' .. at .. ' ' .. claim .. ' ' .. text(answer[2]) .. ' 0'
                given[#given + 1] = {owner, score, home, shared}
            elseif answer.err then
                words = owner
            else
                failure = answer
                break
            end
            if words then
                if not lines[home] then
                    homes[#homes + 1] = {home, how}
                end
                lines[home] = lines[home] and lines[home] .. '\n' .. words or words
                if words == owner then
                    break
                end
            end
            redis.call('zrem', queue, owner)
            count = count + 1
        end
        i = i + 2
        if not found[i] and (count == 0 or admits(l, 1)) then -- those before have gone, or stay
            found, i = redis.pcall('zrange', queue, stays, stays + 63, 'withscores'), 1
        end
    end
    local mute = {} -- clients that the server refuses to tell
    for _, h in ipairs(homes) do
        local told = h[1] == own or tell(queue, l.commands, h[1], h[2], lines[h[1]])
        if type(told) == 'table' then
            failure, mute[h[1]] = told, true
        end
    end
    local last
    for _, g in ipairs(given) do
        if mute[g[3]] then
            redis.pcall('zadd', queue, string.format('%.0f', g[2]), g[1]) -- fails if it is gone, and its slot moves
            take(l, g[1], g[4])
            redis.call('pexpire', queue, keep)
            count = count - 1
        else
            last = g
        end
    end
    if last then
        note(queue, record, last[1], math.floor(last[2] / 4) % 8192, l.counter)
    end
    return mine, own and lines[own], failure, count
end

-- pass gives the lock, which is free, to the first in the queue; or leaves it to all, and announces
-- that. It and serve are not those of pass.lua, which have one owner to tell, and tokens and followers in
-- its message: the hand-over of a plain lock would pay for what a batch needs. It returns why the server refuses to announce the lock, if it does; the lines for own; and
-- how many were granted.
local function pass(l, own, message)
    if first(l.queue) then
        if foreigners(l.unlocks, l.commands, message) then
            local text, failure = prompt(l.queue, l.commands, own, portion)
            return failure, text, 0
        end
        local _, text, failure, count = serve(l, own)
        if failure or l.mode ~= 'none' or first(l.queue) then
            return failure and failure.err, text, count -- or whoever asks finds out
        end
    end
    return refusal(announce(l.commands, l.unlocks, message)), nil, 0
end
-- Removes a read/write lock of any owner, and passes the lock on. The script names no owner, and must
-- not be repeated blindly.
--
-- KEYS[1]  lock
-- KEYS[2]  queue; the script has one key only while the slot of a cluster moves
-- KEYS[3]  fencing counter; only for a fenced lock
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  unlock channel
-- ARGV[3]  beginning of the keys of read holds
--
-- reply    {1}              removed
--          {0}              the lock was free
--          {-1, key, type}  the key is no read/write lock
local l = {key = KEYS[1], queue = KEYS[2], counter = KEYS[3], commands = ARGV[1], unlocks = ARGV[2], prefix = ARGV[3], mode = 'none'}
local mode = look(l.key, '')
if stranger(mode) then
    return {-1, l.key, mode}
end
local removed = redis.call('del', l.key)
local ticket, _, record
if l.queue then
    ticket, _, record = first(l.queue)
end
if record then
    redis.call('zrem', l.queue, record)
end
if ticket then
    pass(l, nil, '+1')
elseif removed > 0 then
    announce(l.commands, l.unlocks, '+1')
end
return {removed}
