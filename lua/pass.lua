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
