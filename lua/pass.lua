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

-- patience is the claim of a ticket after a lapse, in milliseconds, until its client has
-- asked again; called is how many tickets a lapse may call.
local patience, called = 400, 128

-- settle ends the record of the newest grant by the queue. If its owner is not of the client
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
    local owner, score = first(queue)
    if score ~= 0 then
        return owner, score
    end
    redis.call('zrem', queue, owner)
    local lapsed, home = client(owner), client(asker)
    if lapsed == home then
        return first(queue)
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
    return first(queue)
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
