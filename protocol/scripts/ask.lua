local replies = {}
-- Stands in front of the scripts for several callers: each caller is answered as if alone.
--
-- outcomes answers each of so many callers without a reply yet: with the result of answer(i),
-- or, in place of an error, with the text of the error: clients do not expect an error in the
-- middle of a reply.
local function outcomes(callers, answer, replies)
    for i = 1, callers do
        local ok, reply = true, replies[i]
        if not reply then
            ok, reply = pcall(answer, i)
        end
        local err = type(reply) == 'table' and reply.err or not ok and reply
        if err then -- some versions of Redis put the place in the script before it
            reply = string.gsub(string.gsub(err, '@?user_script:%s*%d+:%s*', ''), '^%-', '')
            if not string.find(reply, '^%u+ ') then
                reply = 'ERR ' .. reply
            end
            if i == 1 and string.find(reply, '^READONLY ') then -- nothing was done, and nothing will be
                return {err = reply}
            end
        end
        replies[i] = reply
    end
    return replies
end
-- Stands in front of the scripts that may meet foreign keys.
--
-- kind returns 'none', 'lock' with its owner and hold count, or the type of another key. A hash
-- is a lock if the hash has one field, named like an owner, with a number: a script neither
-- waits for nor removes an application's hash under the same name.
local function kind(key)
    local size = redis.pcall('hlen', key)
    if type(size) == 'table' then
        local what = redis.call('type', key).ok
        if what ~= 'hash' then
            return what
        end
        size = redis.call('hlen', key) -- is not allowed: fails again
    elseif size == 0 then
        return 'none'
    end
    if size ~= 1 then
        return redis.pcall('hexists', key, 'mode') == 1 and 'read/write lock' or 'hash with ' .. size .. ' fields'
    end
    local item = redis.call('hgetall', key)
    if string.find(item[1], ':', 1, true) and string.find(item[2], '^%d+$') then
        return 'lock', item[1], item[2]
    end
    return 'hash with the field ' .. item[1]
end
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
-- Stands in front of the scripts that grant a lock.

-- grant gives the lock, which is free, to an owner. It returns the answer to the
-- owner, see try.lua.
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left. The
-- count is a string because Redis formats numbers for what a double may hold.
local function grant(key, counter, lease, owner, spare)
    local token, reserved
    if counter then
        local last = newest(counter)
        if not last then
            return strange(counter)
        end
        token, reserved = following(counter, last, spare)
    end
    local set = redis.pcall('hset', key, owner, '1')
    if type(set) == 'table' then
        return set
    end
    local armed = redis.pcall('pexpire', key, lease)
    if armed ~= 1 then
        redis.call('del', key)
        return armed
    end
    return counter and {1, number(token), reserved} or 1
end

-- again answers an owner that holds the lock: the answer to an earlier delivery was
-- lost, or the message that granted it. It gets a token of its own, as the earlier
-- one is not known here, or was never given. PEXPIRE comes first because a server out
-- of memory refuses a script its first SET only.
local function again(key, counter, lease, ttl, spare)
    local last
    if counter then
        last = newest(counter)
        if not last then
            return strange(counter)
        end
    end
    -- Without a write here, WAIT behind it would not wait for the one that granted the lock.
    redis.call('pexpire', key, math.max(ttl, tonumber(lease)))
    if not counter then
        return 1
    end
    local token, reserved = following(counter, last, spare)
    return {1, number(token), reserved}
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
-- Stands in front of the scripts of plain locks that know the queue, behind queue.lua.

-- unlocksOf is the unlock channel, without the colon that Own in names.go puts into the queue of
-- {name}, to tell it from the queue of name.
local function unlocksOf(queue)
    return 'redisson_lock__channel' .. string.gsub(string.sub(queue, 12), '^(:{[^{]*}:*):$', '%1')
end

-- message returns the text of a grant to an owner, with a time not after the grant, and with the
-- next tickets as long as these are of the same client: the client may pass the lock on to
-- them without the server. It also returns whether no ticket comes next.
local function message(queue, owner, claim, answer, at)
    local token, reserved = 0, 0
    if answer ~= 1 then
        token, reserved = text(answer[2]), answer[3]
    end
    local words, prefix = {owner, at, claim, token, reserved}, client(owner) .. ':'
    local function append(owners)
        for _, next in ipairs(owners) do
            if string.sub(next, 1, #prefix) ~= prefix then
                return false
            end
            table.insert(words, next)
        end
        return #owners > 0
    end
    local behind = redis.call('zrange', queue, 1, 1)
    if append(behind) then -- if several clients queue, it is most often not even one
        append(redis.call('zrange', queue, 2, 64))
    end
    return table.concat(words, ' '), #behind == 0
end

-- hand grants the lock, which is free, to an owner in the queue and tells it, unless
-- that is of the client own. It returns true and the message; false if nobody hears,
-- then the owner is out of the queue; or why it cannot be, then the owner keeps its
-- place. The key of the queue is never gone meanwhile: it would lose its TTL. PEXPIRE
-- comes first because a server out of memory refuses a script its first HSET only.
local function hand(key, queue, counter, commands, owner, score, own)
    local home, how, claim = client(owner), score % 4, math.floor(score / 4) % 8192
    redis.call('pexpire', queue, keep)
    local at = clock() -- first: until Redis 7.0 time goes on in a script
    local answer = grant(key, counter, claim, owner, spare)
    if answer ~= 1 and answer[1] ~= 1 then
        return answer
    end
    redis.call('zadd', queue, 0, '!' .. owner)
    redis.call('zrem', queue, owner)
    local text, last = message(queue, owner, claim, answer, at)
    local told = home == own or tell(queue, commands, home, how, text)
    if told == true then
        if last then -- if the owner lets the grant lapse, there is no other ticket that goes with it
            redis.call('pexpire', queue, claim)
        end
        return true, text
    end
    redis.call('del', key)
    if told then
        redis.call('zadd', queue, string.format('%.0f', score), owner)
    end
    redis.call('zrem', queue, '!' .. owner)
    return told
end

-- serve hands the lock to the first owner in the queue that can hear of it, and takes
-- those out that cannot. If the lock is shared with others who cannot queue, it leaves
-- it to all, and tells that owner to ask, who keeps its place until then; so too if the
-- server refuses the grant: it is short of memory, or the lock's slot moves to another
-- node of the cluster, where the key of a lock that was released is made. It ends before
-- the owner asker.
--
-- It returns true, the message and the owner; in place of true why it cannot tell the
-- owner; or false, nil and the owner asker, nil if nobody is left.
local function serve(key, queue, counter, commands, shared, own, asker)
    local owner, score = first(queue)
    local dead
    while owner and owner ~= asker do
        local home, told, text = client(owner), false, nil
        if home ~= dead then
            if not shared then
                told, text = hand(key, queue, counter, commands, owner, score, own)
            end
            if shared or told and told ~= true and told.err then
                told, text = home == own or tell(queue, commands, home, score % 4, owner), owner
            end
        end
        if told then
            return told, text, owner
        end
        redis.call('zrem', queue, owner)
        dead = home
        owner, score = first(queue)
    end
    return false, nil, owner
end

-- pass gives the lock, which is released, to the first in the queue; or leaves it to
-- all, and announces that. own is the client that releases. It returns why the server
-- refuses to announce the lock, if it does; and what own has to know.
local function pass(key, queue, counter, commands, own)
    local shared = first(queue) and foreigners(unlocksOf(queue), commands, '-0')
    local told, text, owner = serve(key, queue, counter, commands, shared, own)
    if told == true then
        return nil, client(owner) == own and text or nil
    elseif told then
        return told.err -- or whoever asks finds out
    elseif not shared then
        return refusal(announce(commands, unlocksOf(queue), '-0'))
    end
end
-- Stands in front of the scripts that refuse a lock.
--
-- recall asks the client of an owner to give back a kept lock: the hold count is 0, see
-- retain.lua. The message names the owner. The script does not know by which command the
-- client hears.
local function recall(key, owner, held)
    if held ~= '0' then
        return
    end
    local name = key -- as Own in names.go has it
    if not string.find(key, '{', 1, true) then
        name = '{' .. key .. '}'
    elseif string.find(key, '^{[^{]*}:*$') then
        name = key .. ':'
    end
    for _, command in ipairs({'publish', 'spublish'}) do -- a server may know, or permit, only one
        redis.pcall(command, 'rlock_channel:' .. name .. ':' .. string.match(owner, '^(.*):'), owner)
    end
end
-- Grants the lock to an owner whose turn it is, or has it stand in the queue.
--
-- key       lock
-- queue
-- counter   fencing counter; nil for a lock without tokens
-- lease     milliseconds
-- owner     a new one for every grant
-- commands  PUBLISH, SPUBLISH, or both
-- claim     milliseconds, less than 8192; 0 if the owner does not wait
-- how       the owner hears: see queue.lua
-- spare     with a counter: how many tokens to reserve behind the owner's token
--
-- reply     as the reply of try.lua, but
--           {0, pttl, holder, time, before, new, length, absent}  refused
--             time    the server's clock, in microseconds
--             before  so many tickets are before the owner's; 1 without a ticket
--             new     1 if the owner had no ticket before; -1 if the server has no memory for one
--             length  so many tickets were in the queue, or a few less
--             absent  1 if the owner's client hears by PUBLISH, and is not subscribed here
local function ask(key, queue, counter, lease, owner, commands, claim, how, spare)
    local ttl, holder, held = redis.call('pttl', key), '', nil
    if ttl ~= -2 then -- which says that the key does not exist
        local what
        what, holder, held = kind(key)
        if what ~= 'lock' then
            return {-1, key, what}
        elseif holder == owner then
            return again(key, counter, lease, ttl, spare)
        end
    end
    local length, none = tickets(queue)
    if none then
        return none
    end
    if ttl == -2 then
        if length == 0 then
            return grant(key, counter, lease, owner, spare)
        end
        settle(queue, commands, owner)
    end
    local place, new = 0, 0
    if claim ~= '0' then
        place, new = stand(queue, owner, claim, how)
        if type(place) == 'table' then
            return place
        end
    end
    if ttl == -2 then
        local told, _, next = serve(key, queue, counter, commands, false, nil, owner)
        if not told then -- nobody is before the owner
            if next then
                redis.call('zrem', queue, owner)
            end
            return grant(key, counter, lease, owner, spare)
        elseif told ~= true and told[1] == -1 then -- no counter
            if new == 1 then -- the answer tells of no ticket, and nobody would take it out
                redis.call('zrem', queue, owner)
            end
            return told
        end
        ttl, holder = redis.call('pttl', key), next or ''
        if ttl == -2 then -- the server refuses to hand it over: it is free, and next may ask
            ttl, holder = 0, ''
        end
    end
    recall(key, holder, held) -- behind the ticket, to which the lock then goes
    return refused(queue, commands, owner, place, new, length, how, ttl, holder)
end

local function part(i)
    local k, a = (i - 1) * 3 + 1, (i - 1) * 6 + 1
    return ask(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+5))
end
if #KEYS == 3 then
    return part(1)
end
return outcomes(#KEYS / 3, part, replies)
