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
